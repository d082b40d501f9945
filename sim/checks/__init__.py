"""One function for each invariant, over the record of a finished run."""

from __future__ import annotations

from sim.checks.clients import CLIENT_CHECKS
from sim.checks.database import database_checks
from sim.checks.rest import REST_CHECKS
from sim.checks.trace import TRACE_CHECKS
from sim.record import Record
from sim.verdict import Violation


def check_invariants(record: Record) -> list[Violation]:
    """Every breach of an invariant, those of the trace first: they say how the others came about."""
    found = [
        violation for check in (*TRACE_CHECKS, *CLIENT_CHECKS, *REST_CHECKS) for violation in check(record)
    ]
    return found + database_checks(record)
