"""One function for each invariant, over the record of a finished run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sim.checks.clients import CLIENT_CHECKS
from sim.checks.database import database_checks
from sim.checks.disk import DISK_CHECKS, database_lost, forgot, i15, lied_to
from sim.checks.rest import REST_CHECKS, i16
from sim.checks.trace import TRACE_CHECKS
from sim.machine import DatabaseLost
from sim.record import Record
from sim.verdict import Violation

Check = Callable[[Record], Iterator[Violation]]


def check_invariants(record: Record) -> list[Violation]:
    """Every breach of an invariant, those of the trace first: they say how the others came about."""
    if record.run.config_error is not None and record.run.scenario.config_refused is None:
        # a world without an engine keeps every other rule, which proves nothing
        return [Violation(rule="config", sentence=str(record.run.config_error))]
    if isinstance(record.run.ended, DatabaseLost):
        return [*i15(record), *database_lost(record)]
    if lied_to(record):
        return [*i15(record), *i16(record)]
    checks: tuple[Check, ...] = (*DISK_CHECKS, *TRACE_CHECKS, *CLIENT_CHECKS, *REST_CHECKS)
    if forgot(record):
        checks = (*DISK_CHECKS, i16)  # the others compare the log with what was seen of one that is gone
    found = [violation for check in checks for violation in check(record)]
    return found + database_checks(record)
