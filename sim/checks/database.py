"""The invariants that any database shows, judged on the final one by the engine's own `verify`."""

from __future__ import annotations

from engine.verify import read_session, verify_session
from sim.record import Record
from sim.verdict import Violation


def database_checks(record: Record) -> list[Violation]:
    """Every breach that `python -m engine verify` would report."""
    reader = record.run.database.reader()
    return [
        Violation(rule=breach.invariant, sentence=breach.sentence, session=session_id)
        for session_id in record.sessions()
        for breach in verify_session(read_session(reader, session_id)).breaches
    ]
