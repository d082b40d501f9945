"""The plans of an execution: what its transactions read, decide and change. Plain functions over a `tx`.

Everything here may run more than once and has no effect outside its transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from engine import drain, facts, settlement, turn
from engine import events as ev
from engine.claims import (
    HANDED_OVER,
    Clear,
    Command,
    Detach,
    Drop,
    Expire,
    HandOver,
    Keep,
    Open,
    RequestInterrupt,
    Update,
)
from engine.codec import clean_text, decode_row
from engine.errors import SessionNotFound
from engine.limits import EngineConfig
from engine.plan import WHOLE, Plan, command, moves
from engine.ports import Reader, Transaction
from engine.records import Claim, ErrorInfo, Fence, Phase, RecoveryRow, SessionRow
from engine.settlement import Held
from engine.step_records import Decision
from engine.turn import Turn


@attrs.frozen(kw_only=True)
class Next:
    """The value of a drain's transaction: what was decided, and the turn after it."""

    move: drain.Move
    turn: Turn


def session_of(tx: Reader, session_id: str) -> SessionRow:
    """The session's row. Raises `SessionNotFound`."""
    row = tx.session(session_id)
    if row is None:
        raise SessionNotFound(f"there is no session {session_id} in this database")
    return row


def facts_of_open_step(tx: Reader, row: Claim) -> facts.StepFacts | None:
    """The durable facts of the step that `row` says is open; None if none is."""
    if row.assistant_message_id is None:
        return None
    rows = tx.events(row.session_id, row.assistant_seq - 1, WHOLE)
    return facts.fold(decode_row(each).event for each in rows)


def turn_now(tx: Reader, session_id: str, known: Turn) -> Turn:
    """`known`, brought up to the latest event."""
    return turn.advance(known, [decode_row(row) for row in tx.events(session_id, known.seq, WHOLE)])


# --- the drain ---------------------------------------------------------------------------------------


def next_move(
    tx: Transaction,
    fence: Fence,
    known: Turn,
    over: Decision | None,
    closing_id: str | None,
    message_id: str,
    *,
    fraction: float,
    stopping: bool,
    config: EngineConfig,
) -> Plan[Next]:
    """Close the step that is over, and take the drain's next move, in one transaction."""
    session_id = fence.session_id
    now = turn_now(tx, session_id, known)
    queued = tx.pending_inputs(session_id, "queue", 1)
    view = drain.View(
        session=session_of(tx, session_id),
        turn=now,
        closing=None if over is None else over.closing,
        closing_id=closing_id,
        steers=tx.pending_inputs(session_id, "steer", config.steers_per_promotion_max),
        queued=queued[0] if queued else None,
        latest_seq=tx.latest_seq(session_id),
        now_ms=tx.now_ms,
        fraction=fraction,
        stopping=stopping,
    )
    move = drain.decide(view, config)
    events = [*(over.durable if over is not None else ()), *drain.events(view, move, message_id)]
    for event in events:
        now = turn.apply(now, event)
    now = attrs.evolve(now, seq=view.latest_seq + len(events))

    def commit(tx: Transaction, stored: Sequence[ev.Stored]) -> None:
        for each in _commands(move, fence, message_id, stored, config):
            command(tx, session_id, each)
        _settle_recovery(tx, session_id, stored, ended=isinstance(move, drain.Succeed | drain.Fail))

    return Plan(events=events, commit=commit, value=Next(move=move, turn=now))


def _commands(
    move: drain.Move,
    fence: Fence,
    message_id: str,
    stored: Sequence[ev.Stored],
    config: EngineConfig,
) -> list[Command]:
    def update(phase: Phase, step: Keep | Detach | Open) -> Update:
        return Update(fence=fence, phase=phase, step=step, lease_ms=config.lease_ms)

    match move:
        case drain.Begin():
            seq = next(item.seq for item in stored if isinstance(item.event, ev.StepStarted))
            return [update(Phase.UNKNOWN, Open(message_id=message_id, seq=seq))]
        case drain.Retry():
            return [update(Phase.CONTINUE, Detach())]
        case drain.Rest():
            return [update(Phase.SAFE, Detach())]
        case drain.Succeed() | drain.Fail():
            return [Clear(fence=fence)]
        case drain.HandOver(phase=phase):
            first = [] if phase is None else [update(phase, Detach())]
            return [*first, HandOver(fence=fence)]
        case drain.Wait():
            return []


def _settle_recovery(tx: Transaction, session_id: str, stored: Sequence[ev.Stored], *, ended: bool) -> None:
    """The first commit after a take-over takes its wake; a good step or an ending resets the count."""
    row = tx.recovery(session_id)
    if row is None:
        return
    if ended:
        tx.delete_recovery(session_id)
        return
    good = any(isinstance(item.event, ev.StepEnded) for item in stored)
    tx.put_recovery(attrs.evolve(row, wake_pending=False, takeovers=0 if good else row.takeovers))


def fail(tx: Transaction, fence: Fence, error: ErrorInfo) -> Plan[None]:
    """End an execution that can't go on and has no open step: park what is pending, and clear."""
    session_id = fence.session_id
    failed = ev.ExecutionFailed(session_id=session_id, error=error, parked_through=tx.latest_seq(session_id))

    def commit(tx: Transaction, stored: Sequence[ev.Stored]) -> None:
        command(tx, session_id, Clear(fence=fence))
        tx.delete_recovery(session_id)

    return Plan(events=[failed], commit=commit, value=None)


# --- acquiring ---------------------------------------------------------------------------------------


def recovery_after_takeover(
    old: RecoveryRow | None, row: Claim, previous: Claim, last_message_id: str | None
) -> RecoveryRow:
    """The recovery row of a take-over, which counts unless the claim was handed over."""
    counted = 0 if previous.expires_at == HANDED_OVER else 1
    return RecoveryRow(
        session_id=row.session_id,
        execution_id=row.execution_id,
        previous_execution_id=previous.execution_id,
        continuation_message_id=row.assistant_message_id or last_message_id,
        wake_pending=True,
        takeovers=(0 if old is None else old.takeovers) + counted,
        recovery_error=None,
    )


# --- settlement --------------------------------------------------------------------------------------


def recover_unknown(
    tx: Transaction, row: Claim, config: EngineConfig, exhausted: bool
) -> Plan[ErrorInfo | None]:
    """Settle the step a lost execution left open. The value is None if the execution goes on."""
    session_id = row.session_id
    events = settlement.close(facts_of_open_step(tx, row), settlement.NOTHING_HELD, "unknown")
    fence = row.fence
    if exhausted or config.on_unknown == "stop":
        message = (
            f"taken over more than {config.takeovers_max} times without progress"
            if exhausted
            else settlement.UNKNOWN_OUTCOME
        )
        error = ErrorInfo(type="takeovers-exhausted" if exhausted else "unknown", message=message)
        latest = tx.latest_seq(session_id)
        events.append(ev.ExecutionFailed(session_id=session_id, error=error, parked_through=latest))

        def stop(tx: Transaction, stored: Sequence[ev.Stored]) -> None:
            command(tx, session_id, Clear(fence=fence))
            _settle_recovery(tx, session_id, stored, ended=True)

        return Plan(events=events, commit=stop, value=error)
    events.append(
        ev.Synthetic(session_id=session_id, text=settlement.CONTINUATION_NOTE, description="outcome unknown")
    )

    def go_on(tx: Transaction, stored: Sequence[ev.Stored]) -> None:
        update = Update(fence=fence, phase=Phase.CONTINUE, step=Detach(), lease_ms=config.lease_ms)
        command(tx, session_id, update)
        _settle_recovery(tx, session_id, stored, ended=False)

    return Plan(events=events, commit=go_on, value=None)


def ask_to_cancel(tx: Transaction, row: Claim, config: EngineConfig, *, anew: bool) -> Plan[None]:
    """Move our own execution to `cancelling`, and note how far the interrupt reaches.

    Only a request that is made `anew` reaches further than one that stands: input that came after that one
    isn't meant by it.
    """
    asked = claim_request(row, tx.latest_seq(row.session_id))

    def accept(stored: Sequence[ev.Stored]) -> Sequence[Command]:
        return [
            *([asked] if anew or row.interrupt_seq is None else []),
            Update(fence=row.fence, phase=Phase.CANCELLING, step=Keep(), lease_ms=config.lease_ms),
        ]

    return Plan(commit=moves(accept, row.session_id), value=None)


def claim_request(row: Claim, seq: int) -> Command:
    """The command that asks the execution in `row` to stop."""
    return RequestInterrupt(session_id=row.session_id, execution_id=row.execution_id, seq=seq)


def settle_interrupted(tx: Transaction, row: Claim, held: Held, config: EngineConfig) -> Plan[None]:
    """A user's interrupt: close the step, end the execution, park, and move to `cancelled`."""
    session_id = row.session_id
    asked = tx.latest_seq(session_id) if row.interrupt_seq is None else row.interrupt_seq
    events = [
        *settlement.close(facts_of_open_step(tx, row), held, "user"),
        ev.ExecutionInterrupted(session_id=session_id, parked_through=asked),
    ]

    def done(stored: Sequence[ev.Stored]) -> Sequence[Command]:
        return [Update(fence=row.fence, phase=Phase.CANCELLED, step=Detach(), lease_ms=config.lease_ms)]

    return Plan(events=events, commit=moves(done, session_id), value=None)


def clear_cancelled(tx: Transaction, fence: Fence) -> Plan[None]:
    """Drop a claim whose cancellation is settled."""

    def commit(tx: Transaction, stored: Sequence[ev.Stored]) -> None:
        command(tx, fence.session_id, Clear(fence=fence))
        tx.delete_recovery(fence.session_id)

    return Plan(commit=commit, value=None)


def settle_shutdown(tx: Transaction, row: Claim, held: Held, config: EngineConfig) -> Plan[None]:
    """A shutdown: close the step, and free the claim for whoever goes on with the turn."""
    session_id = row.session_id
    events = [
        *settlement.close(facts_of_open_step(tx, row), held, "shutdown"),
        ev.ExecutionHandedOver(session_id=session_id),
    ]
    was_open = row.assistant_message_id is not None

    def hand_over(stored: Sequence[ev.Stored]) -> Sequence[Command]:
        fence = row.fence
        update = Update(fence=fence, phase=Phase.CONTINUE, step=Detach(), lease_ms=config.lease_ms)
        return [*([update] if was_open else []), HandOver(fence=fence)]

    return Plan(events=events, commit=moves(hand_over, session_id), value=None)


def expire(tx: Transaction, fence: Fence) -> Plan[None]:
    """Free the claim at once, for recovery."""
    return Plan(commit=moves(lambda stored: [Expire(fence=fence)], fence.session_id), value=None)


def quarantine(tx: Transaction, fence: Fence, reason: str) -> Plan[None]:
    """Give the pending recovery row its reason (or write one), and drop the claim."""
    session_id = fence.session_id
    row = tx.claim(session_id)
    old = tx.recovery(session_id)
    pending = old is not None and old.execution_id == fence.execution_id
    if old is None or not pending:
        old = RecoveryRow(
            session_id=session_id,
            execution_id=fence.execution_id,
            previous_execution_id=None,
            continuation_message_id=None if row is None else row.assistant_message_id,
            wake_pending=True,
            takeovers=0 if old is None else old.takeovers,
            recovery_error=None,
        )
    quarantined = attrs.evolve(old, recovery_error=clean_text(reason))

    def commit(tx: Transaction, stored: Sequence[ev.Stored]) -> None:
        command(tx, session_id, Drop(fence=fence))
        tx.put_recovery(quarantined)

    return Plan(commit=commit, value=None)
