"""A plan: what a publication writes, decided inside its transaction; and claim commands applied there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import attrs

from engine import claims, facts
from engine import events as ev
from engine.codec import decode_row
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


def facts_of(tx: Transaction, session_id: str) -> claims.Facts:
    """What an acquire is decided by, beside the row.

    A step can be open without a claim only after a quarantine was released, so only then is the log folded:
    a damaged event in any other session costs nothing here.
    """
    session = tx.session(session_id)
    recovery = tx.recovery(session_id)
    started = tx.latest_event(session_id, ev.StepStarted.type)
    step = None if started is None or recovery is None else facts.fold(_events_from(tx, started))
    return claims.Facts(
        deleted=session is not None and session.deleted,
        quarantined=recovery is not None and recovery.recovery_error is not None,
        generation=tx.generation(session_id),
        assistant_seq=-1 if started is None else started.seq,
        open_message_id=None if step is None or step.terminal is not None else step.message_id,
    )


def _events_from(tx: Transaction, first: EventRow) -> Iterator[ev.Event]:
    for row in tx.events(first.session_id, first.seq - 1, WHOLE):
        yield decode_row(row).event


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


def moves(what: Callable[[Sequence[Stored]], Sequence[claims.Command]], session_id: str) -> Any:
    """A `commit` that applies claim commands which depend on the stored events (the seq of a step)."""

    def commit(tx: Transaction, stored: Sequence[Stored]) -> None:
        for each in what(stored):
            command(tx, session_id, each)

    return commit
