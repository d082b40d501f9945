"""One function for each invariant, over the record of a finished run."""

from __future__ import annotations

from sim.checks.database import database_checks
from sim.checks.trace import TRACE_CHECKS
from sim.record import Record
from sim.verdict import Violation

CHECKED = ("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I13")


def check_invariants(record: Record) -> list[Violation]:
    """Every breach of an invariant, those of the trace first: they say how the others came about."""
    found = [violation for check in TRACE_CHECKS for violation in check(record)]
    return found + database_checks(record)


__all__ = ["CHECKED", "check_invariants"]
