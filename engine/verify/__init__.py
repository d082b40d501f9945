"""Checks that a database's sessions keep the invariants that a log alone can show.

An independent, naive reading of the log: it shares no fold with the engine, so that the two can be held
against each other. Pure functions over materialised records; `read_session` makes one from a snapshot.

An event that can't be decoded is named, and the rest is still checked: its envelope counts, and nothing is
called missing that it might hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import attrs

from engine.ports import Reader
from engine.verify.executions import i1, i7, pending
from engine.verify.inbox import i11
from engine.verify.projected import i10
from engine.verify.records import (
    PAGE,
    Breach,
    Pending,
    SessionRecord,
    Unreadable,
    UnreadableRow,
    decode_or_keep,
    event_rows,
    read_session,
)
from engine.verify.sequence import i8
from engine.verify.steps import i4, i5, i6, i13

__all__ = [
    "CHECKS",
    "NOT_CHECKABLE",
    "Breach",
    "Findings",
    "Pending",
    "SessionRecord",
    "Unreadable",
    "UnreadableRow",
    "decode_or_keep",
    "event_rows",
    "read_session",
    "session_ids",
    "verify_session",
]

Check = Callable[[SessionRecord], Iterator[Breach]]

CHECKS: Mapping[str, Check] = MappingProxyType(
    {"I1": i1, "I4": i4, "I5": i5, "I6": i6, "I7": i7, "I8": i8, "I10": i10, "I11": i11, "I13": i13}
)
"""Each invariant that a database can show, by its id; the docstring of its check says what it demands."""

NOT_CHECKABLE: Mapping[str, str] = MappingProxyType(
    {
        "I2": "nobody takes over a live claim while clocks are in their band",
        "I3": "an expired claim is never renewed, and a lost handle stays lost",
        "I9": "the publisher's memory equals what is committed",
        "I12": "after an interrupt was settled, that execution writes nothing",
        "I14": "a follower sees every committed event once, in order",
        "I15": "what was acknowledged survives power loss",
        "I16": "after faults stop, every session comes to rest",
    }
)
"""Invariants that need the trace of a simulated run: a database doesn't tell when, or who saw what."""


@attrs.frozen(kw_only=True)
class Findings:
    """What one session's record shows. Only `breaches` and what is unreadable speak against it."""

    breaches: tuple[Breach, ...]
    pending: tuple[Pending, ...]
    unreadable: tuple[Unreadable | UnreadableRow, ...]

    @property
    def ok(self) -> bool:
        """Whether all is readable and nothing is broken."""
        return not self.breaches and not self.unreadable


def verify_session(record: SessionRecord) -> Findings:
    """All checks on one session; breaches in the order of the log, those without a seq last."""
    found = [breach for check in CHECKS.values() for breach in check(record)]
    found.sort(key=lambda breach: len(record.events) if breach.seq is None else breach.seq)
    return Findings(
        breaches=tuple(found),
        pending=tuple(pending(record)),
        unreadable=(*record.unreadable, *record.rows_unreadable),
    )


def session_ids(tx: Reader) -> list[str]:
    """Every session of a snapshot, tombstones included."""
    found: list[str] = []
    while page := tx.sessions(found[-1] if found else "", PAGE):
        found += [row.session_id for row in page]
    return found
