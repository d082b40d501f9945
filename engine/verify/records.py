"""What a verification reads and what it finds: one session at a time, as plain values."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import attrs

from engine.codec import decode_row
from engine.errors import EventError, RowMalformed
from engine.events import Event, Stored
from engine.ports import Reader
from engine.records import Claim, EventRow, InputRow, RecoveryRow, SessionRow

T = TypeVar("T")

PAGE = 1_000
"""Rows that one read asks for; a session is read page by page."""


@attrs.frozen(kw_only=True)
class Unreadable:
    """An event that can't be decoded. Its envelope still counts; what it says is unknown."""

    event_id: str
    session_id: str
    seq: int
    type: str
    version: int
    created: int
    execution_id: str | None
    reason: str


@attrs.frozen(kw_only=True)
class UnreadableRow:
    """What a table beside the log says of the session, and nobody can read."""

    session_id: str
    table: str
    reason: str


@attrs.frozen(kw_only=True)
class Breach:
    """A broken invariant. `seq` is the event that shows it, None if no single one does."""

    invariant: str
    session_id: str
    seq: int | None
    sentence: str


@attrs.frozen(kw_only=True)
class Pending:
    """What somebody still has to do; no fault. `kind`: `claim`, `input`, `released` or `quarantined`."""

    session_id: str
    kind: str
    sentence: str


@attrs.frozen(kw_only=True)
class SessionRecord:
    """All that one snapshot of a database holds of one session, the log in its order.

    `inputs` is None if its rows can't be read. `latest_seq` and `generation` are what the tables `sequence`
    and `session_fence` say (-1 and 0 if nothing); None leaves the checks that need them out.
    """

    session_id: str
    events: tuple[Stored | Unreadable, ...]
    session: SessionRow | None
    inputs: tuple[InputRow, ...] | None
    claim: Claim | None
    recovery: RecoveryRow | None
    latest_seq: int | None = None
    generation: int | None = None
    rows_unreadable: tuple[UnreadableRow, ...] = ()

    @functools.cached_property
    def stored(self) -> tuple[Stored, ...]:
        """The events that could be decoded."""
        return tuple(item for item in self.events if isinstance(item, Stored))

    @functools.cached_property
    def unreadable(self) -> tuple[Unreadable, ...]:
        """The events that couldn't."""
        return tuple(item for item in self.events if isinstance(item, Unreadable))

    @property
    def quarantined(self) -> bool:
        """Whether its execution failed with a defect, so that nobody may settle it."""
        return self.recovery is not None and self.recovery.recovery_error is not None

    @functools.cached_property
    def deleted(self) -> bool:
        """Whether the log holds a tombstone."""
        return any(item.type == "session.deleted" for item in self.events)

    @property
    def unattended(self) -> bool:
        """Whether nobody executes the session and nobody is due to: all must be settled then.

        A session in quarantine, or released from it and not executed since, may hold an open step; so may
        one that was discarded from there, of which only the tombstone tells.
        """
        return self.claim is None and self.recovery is None and not self.deleted and not self.rows_unreadable

    def of(self, *classes: type[Event]) -> list[Stored]:
        """Its readable events of these classes, in order."""
        return [item for item in self.stored if isinstance(item.event, classes)]

    def hides(self, *, after: float = -math.inf, before: float = math.inf) -> bool:
        """Whether an unreadable event lies between two seqs: what is missing there may be in it."""
        return any(after < item.seq < before for item in self.unreadable)

    def breach(self, invariant: str, seq: int | None, sentence: str) -> Breach:
        """A breach in this session."""
        return Breach(invariant=invariant, session_id=self.session_id, seq=seq, sentence=sentence)


def read_session(tx: Reader, session_id: str) -> SessionRecord:
    """Everything of one session, from one snapshot. What can't be decoded is kept as such.

    Raises a `StoreError`.
    """
    beside: list[UnreadableRow] = []

    def row(table: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (EventError, RowMalformed) as exc:
            # an input that isn't JSON, a phase that nobody knows, text that isn't UTF-8
            beside.append(UnreadableRow(session_id=session_id, table=table, reason=str(exc)))
            return None

    inputs = row("input", lambda: tuple(tx.inputs(session_id)))
    claim = row("execution_claim", lambda: tx.claim(session_id))
    return SessionRecord(
        session_id=session_id,
        events=tuple(decode_or_keep(each) for each in event_rows(tx, session_id)),
        session=tx.session(session_id),
        inputs=inputs,
        claim=claim,
        recovery=tx.recovery(session_id),
        latest_seq=tx.latest_seq(session_id),
        generation=tx.generation(session_id),
        rows_unreadable=tuple(beside),
    )


def event_rows(tx: Reader, session_id: str) -> Iterator[EventRow]:
    """The session's whole log, page by page."""
    after = -1
    while page := tx.events(session_id, after, PAGE):
        yield from page
        after = page[-1].seq


def decode_or_keep(row: EventRow) -> Stored | Unreadable:
    """The event in a row, or what is known of it if it can't be decoded."""
    try:
        return decode_row(row)
    except EventError as exc:
        return Unreadable(
            event_id=row.event_id,
            session_id=row.session_id,
            seq=row.seq,
            type=row.type,
            version=row.version,
            created=row.created,
            execution_id=row.execution_id,
            reason=str(exc),
        )
