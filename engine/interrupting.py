"""Interrupting a session, from whichever node: asked durably first, and always answered within a bound."""

from __future__ import annotations

import enum
import functools

import attrs

from engine import events as ev
from engine.claims import is_free
from engine.coordinator import Coordinator
from engine.endings import Interrupted
from engine.errors import ClaimCancelling, ClaimHeld, ClaimLost
from engine.execution import Execution
from engine.log import Published, Stage
from engine.metrics import Metrics
from engine.node import Node
from engine.plan import Plan, command
from engine.ports import Reader, Transaction
from engine.records import Claim, InterruptAnswer, Phase
from engine.transactions import ask_to_cancel, claim_request, session_of

SETTLING_PHASES = (Phase.CANCELLING, Phase.CANCELLED)


class _Found(enum.Enum):
    """What a look at a claim that isn't ours found."""

    NOBODY = enum.auto()
    SETTLING = enum.auto()
    ASKED = enum.auto()


@attrs.define
class Interrupter:
    """`interrupt`, over the coordinator of this node."""

    _node: Node
    _coordinator: Coordinator

    async def interrupt(self, session_id: str) -> InterruptAnswer:
        """Stop the session's turn and park its pending input.

        Answers within `interrupt_ms_max`; see `InterruptAnswer`. Raises `SessionNotFound`, or a `StoreError`
        if the request itself couldn't be written.
        """
        node = self._node
        node.log.metrics.count(Metrics.INTERRUPTS)
        with node.clock.scope(node.deadline(node.config.interrupt_ms_max)):
            return await self._interrupt(session_id)
        await node.clock.checkpoint()
        return InterruptAnswer.REQUESTED

    async def _interrupt(self, session_id: str) -> InterruptAnswer:
        slot = self._coordinator.slot(session_id)
        if slot is not None:
            await slot.acquired.wait()
            await self._node.clock.checkpoint()
            answer = await self._ask_here(session_id)
            if answer is not None:
                return answer
        return await self._ask_elsewhere(session_id)

    # --- our own execution ---------------------------------------------------------------------------

    async def _ask_here(self, session_id: str) -> InterruptAnswer | None:
        """None if nothing is executed here, or the claim turned out not to be ours any more."""
        config = self._node.config
        execution = self._executing(session_id)
        if execution is None:
            return None

        def plan(tx: Transaction, row: Claim | None) -> Plan[bool]:
            assert row is not None
            if row.phase in SETTLING_PHASES:
                return Plan(value=False)
            return Plan(commit=ask_to_cancel(tx, row, config, anew=True).commit, value=True)

        def after_commit(published: Published[bool]) -> None:
            if published.value and published.row is not None:
                execution.row = published.row
                execution.cancel_for_user()

        try:
            published = await self._node.log.publish(
                session_id,
                plan,
                claim=execution.handle,
                stage=Stage.SETTLING,
                after_commit=after_commit,
                label="interrupt",
            )
        except ClaimCancelling:
            return InterruptAnswer.ALREADY_SETTLING
        except ClaimLost:
            return None
        if not published.value:
            return InterruptAnswer.ALREADY_SETTLING
        await execution.done.wait()
        await self._node.clock.checkpoint()
        return InterruptAnswer.SETTLED if isinstance(execution.ending, Interrupted) else None

    def _executing(self, session_id: str) -> Execution | None:
        slot = self._coordinator.slot(session_id)
        if slot is None or slot.execution is None or slot.execution.handle.over:
            return None
        return slot.execution

    # --- somebody else's, or nobody's ----------------------------------------------------------------

    async def _ask_elsewhere(self, session_id: str) -> InterruptAnswer:
        """Ask whoever holds the claim, and watch until it is settled; the caller's bound ends the watch."""
        while True:
            found, asked_at = await self._node.log.store.write(
                functools.partial(_ask, session_id=session_id), label="interrupt"
            )
            if found is _Found.SETTLING:
                return InterruptAnswer.ALREADY_SETTLING
            if found is _Found.ASKED:
                answer = await self._watch(session_id, asked_at)
                if answer is not None:
                    return answer
            elif await self._park(session_id):
                return InterruptAnswer.NOT_RUNNING

    async def _watch(self, session_id: str, asked_at: int) -> InterruptAnswer | None:
        """Wait for the answer to what was asked, by reading alone. None if it was never heard."""
        clock, store = self._node.clock, self._node.log.store
        while True:
            row = await store.read(lambda tx: tx.claim(session_id))
            if row is None or row.interrupt_seq is None:
                heard = await self._was_interrupted(session_id, asked_at)
                return InterruptAnswer.SETTLED if heard else None
            if is_free(row, clock.now_ms()):
                self._coordinator.wake(session_id)  # its owner is dead, and we may be its successor
            await clock.sleep(self._node.config.poll_ms / 1000)
            # our own slot may have taken the claim up by now, to finish what was asked
            if await self._ask_here(session_id) is InterruptAnswer.SETTLED:
                return InterruptAnswer.SETTLED

    async def _was_interrupted(self, session_id: str, asked_at: int) -> bool:
        def work(tx: Reader) -> bool:
            row = tx.latest_event(session_id, ev.ExecutionInterrupted.type)
            return row is not None and row.seq > asked_at

        return await self._node.log.store.read(work)

    async def _park(self, session_id: str) -> bool:
        """Park what is pending, unless somebody claimed the session meanwhile (False)."""

        def plan(tx: Transaction, row: Claim | None) -> Plan[bool]:
            if tx.claim(session_id) is not None:
                return Plan(value=False)
            latest = tx.latest_seq(session_id)
            waiting = tx.pending_count(session_id) > tx.parked_count(session_id)
            events = [ev.InputParked(session_id=session_id, through=latest)] if waiting else []
            return Plan(events=events, value=True)

        return (await self._node.log.publish(session_id, plan, label="park")).value

    # --- deletion ------------------------------------------------------------------------------------

    async def delete(self, session_id: str) -> None:
        """Interrupt, then leave a tombstone once there is no claim. Raises `ClaimHeld`, `SessionNotFound`."""
        clock = self._node.clock
        until = self._node.deadline(self._node.config.interrupt_ms_max)
        while True:
            answer = await self.interrupt(session_id)
            published = await self._node.log.publish(
                session_id, functools.partial(_bury, session_id=session_id), label="session.deleted"
            )
            if published.value:
                return
            if answer is InterruptAnswer.REQUESTED or clock.monotonic() >= until:
                raise ClaimHeld(
                    f"{session_id} is still held by another node; it was asked to stop, try again"
                )
            await clock.sleep(self._node.config.poll_ms / 1000)


def _bury(tx: Transaction, row: Claim | None, *, session_id: str) -> Plan[bool]:
    """The tombstone, if nobody holds the session; cancelling what is pending. True if it is deleted."""
    if session_of(tx, session_id).deleted:
        return Plan(value=True)
    if tx.claim(session_id) is not None:
        return Plan(value=False)
    pending = [one for one in tx.inputs(session_id) if one.state == "pending"]
    cancelled = [ev.InputCancelled(session_id=session_id, input_id=one.input_id) for one in pending]
    return Plan(
        events=[*cancelled, ev.SessionDeletedEvent(session_id=session_id)],
        commit=lambda tx, stored: tx.delete_recovery(session_id),
        value=True,
    )


def _ask(tx: Transaction, *, session_id: str) -> tuple[_Found, int]:
    session_of(tx, session_id)
    row, latest = tx.claim(session_id), tx.latest_seq(session_id)
    if row is None:
        return _Found.NOBODY, latest
    if row.phase in SETTLING_PHASES and not is_free(row, tx.now_ms):
        return _Found.SETTLING, latest
    command(tx, session_id, claim_request(row, latest))
    return _Found.ASKED, latest
