"""The coordinator: one slot per busy session, the only place that acquires or takes over its claim.

A failing session never hurts another. Slots are started in the engine's own context, so that no task inherits
the surroundings of whoever happened to ring. And every task of the engine is protected from a Ctrl-C, which
thus goes to the host's main task: anywhere else it would look like a defect of the session it hit.
"""

from __future__ import annotations

import contextvars
import logging

import attrs
import trio

from engine import housekeeping
from engine.acquiring import Acquired, acquire
from engine.claims import Watched
from engine.doorbell import ELSEWHERE
from engine.endings import Ending, Quarantined
from engine.errors import (
    ClaimHeld,
    EventError,
    QuarantineFailed,
    RowMalformed,
    SessionDeleted,
    SessionQuarantined,
    StoreError,
)
from engine.execution import Execution
from engine.node import Node

logger = logging.getLogger("fencepost.coordinator")


@attrs.define(eq=False)
class Slot:
    """One busy period of one session in this process."""

    session_id: str
    number: int
    woken: bool = True
    watched: Watched | None = None
    execution: Execution | None = None
    acquired: trio.Event = attrs.field(factory=trio.Event)  #: unset while the claim is just being acquired
    idle: trio.Event = attrs.field(factory=trio.Event)
    ending: Ending | None = None  #: of the latest execution; None if there was nothing to do
    error: Exception | None = None


class Coordinator:
    """Serialises executions per session; see `wake`, `run`, `wait_idle` and `shutdown`."""

    def __init__(self, node: Node, nursery: trio.Nursery) -> None:
        self._node = node
        self._nursery = nursery
        self._context = contextvars.copy_context()
        self._slots: dict[str, Slot] = {}
        self._started = 0
        self._running = trio.CapacityLimiter(node.config.sessions_running_max)
        self._stopping = False

    def active(self) -> tuple[str, ...]:
        """The sessions that are busy here."""
        return tuple(self._slots)

    def slot(self, session_id: str) -> Slot | None:
        """The session's slot if it is busy."""
        return self._slots.get(session_id)

    def wake(self, session_id: str, watched: Watched | None = None) -> Slot | None:
        """Ring the session's slot: any number of rings during a run cause one more look, none is lost.

        Returns the slot, or None if the node is shutting down. `watched` names a future-dated claim that was
        seen unchanged for long enough to be taken over.
        """
        if self._stopping:
            return None
        slot = self._slots.get(session_id)
        if slot is not None:
            slot.woken = True
            slot.watched = watched or slot.watched
            return slot
        self._started += 1
        slot = Slot(session_id, self._started, watched=watched)
        slot.acquired.set()
        self._slots[session_id] = slot
        self._context.run(
            lambda: self._nursery.start_soon(self._run, slot, name=f"{session_id}/slot/{slot.number}")
        )
        return slot

    async def run(self, session_id: str) -> Ending | None:
        """Start or join the session's busy period; how its last execution ended, None if idle already.

        Raises what kept it from starting: `SessionNotFound`, or a `StoreError`.
        """
        slot = self.wake(session_id)
        if slot is None:
            return None
        await slot.idle.wait()
        await self._node.clock.checkpoint()
        if slot.error is not None:
            raise slot.error
        return slot.ending

    async def wait_idle(self, session_id: str | None = None) -> None:
        """Wait until the session, or every session with None, isn't busy here."""
        await self._node.clock.checkpoint()
        while True:
            busy = [slot for key, slot in self._slots.items() if session_id in (None, key)]
            if not busy:
                return
            await busy[0].idle.wait()
            await self._node.clock.checkpoint()

    async def shutdown(self) -> None:
        """Stop admitting, give running steps their grace, then settle and hand over what is left."""
        self._stopping = True
        for execution in self._executions():
            execution.stop_soon()
        if self._slots:
            with self._node.clock.scope(self._node.deadline(self._node.config.shutdown_grace_ms)):
                await self.wait_idle()
        for execution in self._executions():
            execution.stop_now()
        await self.wait_idle()

    def _executions(self) -> list[Execution]:
        return [slot.execution for slot in self._slots.values() if slot.execution is not None]

    # --- the slot's own task -------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _run(self, slot: Slot) -> None:
        try:
            await self._node.clock.checkpoint()
            while slot.woken and not self._stopping:
                slot.woken = False
                # first come, first served: a session that is ready again queues behind those that wait
                async with self._running:
                    await self._node.clock.checkpoint()
                    if not self._stopping:
                        await self._guarded(slot)
        finally:
            del self._slots[slot.session_id]
            slot.acquired.set()
            slot.idle.set()

    async def _guarded(self, slot: Slot) -> None:
        """One look, whose fault stays its session's own: said loudly, and left to the next ring or sweep."""
        slot.error = None
        try:
            await self._once(slot)
        except StoreError as exc:
            logger.warning("a session can't be claimed: %s", exc, extra={"session_id": slot.session_id})
            slot.error = exc
        except (EventError, RowMalformed) as exc:
            await self._quarantine(slot, exc)
        except Exception as exc:
            logger.exception("a session's slot failed", extra={"session_id": slot.session_id})
            slot.error = exc

    async def _quarantine(self, slot: Slot, defect: Exception) -> None:
        """What the log or a row says can't be read: nobody can claim this session, so nobody tries again."""
        session_id, reason = slot.session_id, f"{type(defect).__name__}: {defect}"
        logger.error("a defect: the session is quarantined: %s", reason, extra={"session_id": session_id})
        try:
            await self._node.log.store.write(
                lambda tx: housekeeping.quarantine_unread(tx, session_id, reason),
                lambda written: self._node.log.doorbells.ring(session_id),
                label="quarantine",
            )
            slot.ending = Quarantined(reason=reason)
        except StoreError as exc:
            failed = QuarantineFailed(f"the quarantine of {session_id} couldn't be written: {exc}")
            failed.__cause__ = defect
            slot.error = failed

    async def _once(self, slot: Slot) -> None:
        """Acquire, and run what was acquired. An execution exists from the hop of its commit on, so that a
        cancellation while listeners hear of it can't lose a claim that is ours."""
        slot.acquired = trio.Event()

        def hop(acquired: Acquired) -> None:
            slot.execution = Execution(
                self._node,
                acquired.handle,
                acquired.session,
                acquired.row,
                takeovers=acquired.takeovers,
            )
            if self._stopping:
                slot.execution.stop_now()  # the shutdown couldn't tell it before it was there
            slot.acquired.set()

        try:
            await acquire(self._node, slot.session_id, slot.watched, hop)
        except trio.Cancelled:
            if slot.execution is None:
                raise
        except (ClaimHeld, SessionDeleted):
            logger.debug("nothing to claim", extra={"session_id": slot.session_id})
        except SessionQuarantined as exc:
            slot.ending = Quarantined(reason=str(exc))
        finally:
            slot.watched = None
            slot.acquired.set()
        if slot.execution is None:
            return
        try:
            with self._node.log.doorbells.bell(ELSEWHERE) as bell:
                slot.ending = await slot.execution.run(bell)
        finally:
            slot.execution = None
