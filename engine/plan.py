"""A plan: what a publication writes, decided inside its transaction; and claim commands applied there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import attrs

from engine import claims
from engine import events as ev
from engine.codec import decode_row
from engine.errors import EventError
from engine.events import Event, Stored
from engine.ports import Transaction
from engine.records import JSON, Claim, EventRow

V = TypeVar("V")

WHOLE = 1_000_000
"""A limit for reads that want all there is, inside a transaction."""


def no_change(tx: Transaction, stored: Sequence[Stored]) -> None:
    """The operational change of a plan that has none."""


@attrs.frozen(kw_only=True)
class Plan(Generic[V]):
    """Events to store, an operational change that is atomic with them, and a value for the publisher.

    `commit(tx, stored)` is for what is never replayed (the claim's phase, recovery rows); `metadata` is a
    small JSON object that goes into each event's envelope.
    """

    events: Sequence[Event] = ()
    commit: Callable[[Transaction, Sequence[Stored]], None] = no_change
    value: V
    metadata: Mapping[str, JSON] | None = None
    location: str | None = None


PlanFunction = Callable[[Transaction, Claim | None], Plan[V]]
"""`(transaction, the claim's row after its renewal, or None) -> Plan`. It may run again: no effects."""


STEP_TERMINAL_TYPES = tuple(terminal.type for terminal in ev.STEP_TERMINALS)


def facts_of(tx: Transaction, session_id: str) -> claims.Facts:
    """What an acquire is decided by, beside the row."""
    session = tx.session(session_id)
    recovery = tx.recovery(session_id)
    started = tx.latest_event(session_id, ev.StepStarted.type)
    return claims.Facts(
        deleted=session is not None and session.deleted,
        quarantined=recovery is not None and recovery.recovery_error is not None,
        generation=tx.generation(session_id),
        assistant_seq=-1 if started is None else started.seq,
        open_message_id=None if started is None else _open_message_id(tx, started),
    )


def _open_message_id(tx: Transaction, started: EventRow) -> str | None:
    """The step that `started` opened, if the log shows no terminal for it.

    Without a claim that happens after a quarantine was lifted, or a log replayed up to the middle of a step.
    A damaged event is for whoever executes the session to find: under its claim it can be quarantined.
    """
    later = tx.events(started.session_id, started.seq, WHOLE)
    if any(row.type in STEP_TERMINAL_TYPES for row in later):
        return None
    return message_id_of(started)


def message_id_of(started: EventRow) -> str | None:
    """The step that a stored `step.started` names; None if it can't be read."""
    try:
        event = decode_row(started).event
    except EventError:
        return None
    assert isinstance(event, ev.StepStarted)
    return event.assistant_message_id


def command(tx: Transaction, session_id: str, what: claims.Command) -> claims.Granted:
    """Decide a claim command on the session's row and write what was granted.

    Raises what `claims.granted` raises: `ClaimLost`, `ClaimHeld`, `ClaimCancelling`, `SessionDeleted`,
    `SessionQuarantined`.
    """
    row = tx.claim(session_id)
    if isinstance(what, claims.Acquire):
        known = facts_of(tx, session_id)
    else:
        known = claims.Facts(generation=tx.generation(session_id) if row is None else row.generation)
    grant = claims.granted(claims.decide(row, known, what, tx.now_ms))
    if grant.row is None:
        tx.delete_claim(session_id)
    elif grant.row != row:
        tx.put_claim(grant.row)
        if grant.row.generation != known.generation:
            tx.put_generation(session_id, grant.row.generation)
    return grant


def moves(
    what: Callable[[Sequence[Stored]], Sequence[claims.Command]], session_id: str
) -> Callable[[Transaction, Sequence[Stored]], None]:
    """A `commit` that applies claim commands which depend on the stored events (the seq of a step)."""

    def commit(tx: Transaction, stored: Sequence[Stored]) -> None:
        for each in what(stored):
            command(tx, session_id, each)

    return commit
