"""Acquiring a session's claim, or taking it over: one transaction, one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from engine import events as ev
from engine.claims import Acquire, Watched
from engine.lease import Handle
from engine.log import Published
from engine.node import Node
from engine.plan import Plan, command, message_id_of
from engine.ports import Transaction
from engine.records import Claim, Phase, SessionRow
from engine.transactions import recovery_after_takeover, session_of


@attrs.frozen(kw_only=True)
class Acquired:
    """A claim that is ours now."""

    handle: Handle
    session: SessionRow
    row: Claim
    takeovers: int


@attrs.frozen(kw_only=True)
class _Taken:
    session: SessionRow
    row: Claim
    takeovers: int


async def acquire(
    node: Node, session_id: str, watched: Watched | None, hop: Callable[[Acquired], None]
) -> bool:
    """Claim the session if there is something to do; `hop` gets the claim as its commit's first effect.

    False if there is nothing to do: no claim, and no pending input that isn't parked. Raises `ClaimHeld`,
    `SessionNotFound`, `SessionDeleted`, `SessionQuarantined`, or a `StoreError`.
    """
    execution_id = node.system.ids.new("exe")
    wanted = Acquire(
        session_id=session_id,
        execution_id=execution_id,
        owner_id=node.owner_id,
        lease_ms=node.config.lease_ms,
        watched=watched,
    )
    sent = node.clock.monotonic()

    def after_commit(published: Published[_Taken | None]) -> None:
        taken = published.value
        if taken is not None:
            handle = Handle(taken.row.fence, node.config, node.clock, sent=sent)
            hop(Acquired(handle=handle, session=taken.session, row=taken.row, takeovers=taken.takeovers))

    published = await node.log.publish(
        session_id,
        lambda tx, row: _plan(tx, wanted),
        execution_id=execution_id,
        after_commit=after_commit,
        label="acquire",
    )
    return published.value is not None


def _plan(tx: Transaction, wanted: Acquire) -> Plan[_Taken | None]:
    session_id = wanted.session_id
    session = session_of(tx, session_id)
    if tx.claim(session_id) is None and not _something_to_do(tx, session_id):
        return Plan(value=None)
    grant = command(tx, session_id, wanted)
    row, previous = grant.row, grant.previous
    assert row is not None
    old = tx.recovery(session_id)
    takeovers = 0 if old is None else old.takeovers
    if previous is not None:
        recovery = recovery_after_takeover(old, row, previous, _last_message_id(tx, session_id))
        takeovers = recovery.takeovers
        tx.put_recovery(recovery)
    return Plan(events=_started(row, previous), value=_Taken(session=session, row=row, takeovers=takeovers))


def _something_to_do(tx: Transaction, session_id: str) -> bool:
    """Without a claim: input that isn't parked, or a session that was released from quarantine."""
    return bool(
        tx.pending_inputs(session_id, "steer", 1)
        or tx.pending_inputs(session_id, "queue", 1)
        or tx.recovery(session_id) is not None
    )


def _last_message_id(tx: Transaction, session_id: str) -> str | None:
    last = tx.latest_event(session_id, ev.StepStarted.type)
    return None if last is None else message_id_of(last)


def _started(row: Claim, previous: Claim | None) -> Sequence[ev.Event]:
    """`execution.started`, but for a claim that only needs clearing."""
    if previous is not None and previous.phase is Phase.CANCELLED:
        return ()
    return (
        ev.ExecutionStarted(
            session_id=row.session_id,
            generation=row.generation,
            owner_id=row.owner_id,
            previous_execution_id=None if previous is None else previous.execution_id,
        ),
    )
