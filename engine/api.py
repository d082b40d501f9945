"""The engine as a host sees it: one node's verbs, and the handle of a session."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Sequence

from engine import admission, housekeeping
from engine import events as ev
from engine.changes import Changes
from engine.codec import clean_text
from engine.coordinator import Coordinator
from engine.endings import Ending
from engine.errors import EngineClosed, EventError, SessionExists
from engine.history import messages_of
from engine.interrupting import Interrupter
from engine.live import Subscriber
from engine.metrics import Health, MetricsSnapshot
from engine.node import Node
from engine.plan import Plan
from engine.ports import Reader, Transaction
from engine.reading import LogReader
from engine.records import JSON, Admission, InterruptAnswer, Message, RecoveryRow, SessionRow
from engine.recovery import Recovery
from engine.turns import TurnResult, wait_turn

logger = logging.getLogger("fencepost")


class Engine:
    """One node. Made by `open_engine`; every verb may be called from any task of the host."""

    def __init__(self, node: Node, coordinator: Coordinator, recovery: Recovery) -> None:
        self.node = node
        self.coordinator = coordinator
        self.recovery = recovery  #: its sweep also runs by itself, unless the engine was opened without
        self._interrupter = Interrupter(node, coordinator)
        self._closed = False

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed("this engine is shutting down; open another one")

    # --- sessions ------------------------------------------------------------------------------------

    async def create_session(
        self,
        *,
        title: str = "",
        model: str = "default",
        agent: str = "default",
        system: str = "",
        location: str | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session; its id is drawn unless given, and then giving it twice is an error."""
        self._check_open()
        made = _given("session_id", session_id) or self.node.system.ids.new("ses")
        created = ev.SessionCreated(
            session_id=made,
            title=clean_text(title),
            location=location,
            model=clean_text(model),
            agent=clean_text(agent),
            system=clean_text(system),
        )

        def plan(tx: Transaction, row: object) -> Plan[None]:
            if tx.session(made) is not None:
                raise SessionExists(
                    f"there is a session {made} already: engine.session({made!r}) is its handle"
                )
            return Plan(events=[created], value=None)

        await self.node.log.publish(made, plan, label="session.created")
        return Session(self, made)

    def session(self, session_id: str) -> Session:
        """A session by its id; nothing is looked up before its first use."""
        return Session(self, session_id)

    async def sessions(self, *, after: str = "", limit: int = 100) -> list[SessionRow]:
        """A page of sessions by id, tombstones included."""
        self._check_open()
        return await self.node.log.store.read(lambda tx: tx.sessions(after, limit))

    async def send(
        self,
        session_id: str,
        content: JSON,
        *,
        delivery: ev.Delivery = "steer",
        input_id: str | None = None,
    ) -> Admission:
        """Admit an input durably and wake the session; text is shorthand for `{"text": …}`.

        `steer` joins the running turn at its next step; `queue` waits for its own turn. Idempotent by
        `input_id`. Raises `InputConflict`, `InboxFull`, `EventTooLarge`, `SessionNotFound`, `SessionDeleted`.
        """
        self._check_open()
        config = self.node.config
        wanted = admission.user_input(
            session_id,
            content,
            input_id=_given("input_id", input_id) or self.node.system.ids.new("inp"),
            delivery=delivery,
            config=config,
        )
        published = await self.node.log.publish(
            session_id,
            lambda tx, row: admission.admit(tx, wanted, config),
            after_commit=lambda published: self._wake(session_id),
            label="input.admitted",
        )
        return published.value

    async def resume(self, session_id: str) -> bool:
        """Let parked input run again. False if nothing was parked."""
        self._check_open()
        published = await self.node.log.publish(
            session_id,
            lambda tx, row: admission.resume(tx, session_id),
            after_commit=lambda published: self._wake(session_id),
            label="input.resumed",
        )
        return published.value

    async def cancel_input(self, session_id: str, input_id: str) -> bool:
        """Cancel an input that still waits. False if it was promoted or cancelled before."""
        self._check_open()
        published = await self.node.log.publish(
            session_id,
            lambda tx, row: admission.cancel_input(tx, session_id, input_id),
            label="input.cancelled",
        )
        return published.value

    async def change_delivery(self, session_id: str, input_id: str, delivery: ev.Delivery) -> bool:
        """Make a waiting input a steer or a queued one. False if it no longer waits or was so already."""
        self._check_open()
        published = await self.node.log.publish(
            session_id,
            lambda tx, row: admission.change_delivery(tx, session_id, input_id, delivery),
            after_commit=lambda published: self._wake(session_id),
            label="input.delivery_changed",
        )
        return published.value

    async def delete(self, session_id: str) -> None:
        """Stop the session, cancel its pending input and leave a tombstone: readers end, writes are refused.

        Raises `ClaimHeld` if another node doesn't let go within `interrupt_ms_max`, and `SessionNotFound`.
        """
        self._check_open()
        await self._interrupter.delete(session_id)

    async def purge(self, *, before_ms: int) -> int:
        """Erase every session whose deletion was written before that wall time (ms); how many there were."""
        self._check_open()
        store = self.node.log.store
        found = await store.read(lambda tx: housekeeping.tombstones(tx, before_ms))
        erased = 0
        for session_id in found:
            erase = functools.partial(housekeeping.erase, session_id=session_id)
            erased += await store.write(erase, label="purge")
        return erased

    # --- quarantine ----------------------------------------------------------------------------------

    async def quarantined(self, *, limit: int = 100) -> list[RecoveryRow]:
        """Sessions that aren't executed because of a defect, with the reason in `recovery_error`."""
        self._check_open()
        return await self.node.log.store.read(lambda tx: tx.quarantined(limit))

    async def release(self, session_id: str) -> None:
        """Lift a quarantine and wake the session. Raises `NotQuarantined`."""
        self._check_open()
        await self.node.log.publish(
            session_id,
            lambda tx, row: housekeeping.release(tx, session_id),
            after_commit=lambda published: self._wake(session_id),
            label="release",
        )

    async def discard(self, session_id: str) -> None:
        """Delete a session that is in quarantine. Raises `NotQuarantined`."""
        self._check_open()
        await self.node.log.store.read(lambda tx: housekeeping.quarantine_of(tx, session_id))
        await self.delete(session_id)

    # --- execution -----------------------------------------------------------------------------------

    def _wake(self, session_id: str) -> None:
        self.coordinator.wake(session_id)

    async def execute(self, session_id: str) -> Ending | None:
        """Start the session here, or join it; how its execution ended, None if there was nothing to do."""
        self._check_open()
        return await self.coordinator.run(session_id)

    async def run(self, session_id: str, content: JSON, *, delivery: ev.Delivery = "steer") -> TurnResult:
        """`send`, then `wait_turn`."""
        admitted = await self.send(session_id, content, delivery=delivery)
        return await self.wait_turn(session_id, admitted.input_id)

    async def wait_turn(self, session_id: str, input_id: str) -> TurnResult:
        """Wait for the turn of an input, whichever node executes it."""
        return await wait_turn(self.node.log, session_id, input_id)

    async def interrupt(self, session_id: str) -> InterruptAnswer:
        """Stop the session's turn and park its pending input; answered within `interrupt_ms_max`."""
        self._check_open()
        return await self._interrupter.interrupt(session_id)

    async def wait_idle(self, session_id: str | None = None) -> None:
        """Wait until this node executes nothing for the session, or nothing at all with None."""
        await self.coordinator.wait_idle(session_id)

    # --- reading -------------------------------------------------------------------------------------

    def log(self, session_id: str, *, after: int = -1, follow: bool = False) -> LogReader:
        """A reader of stored events: `async with engine.log(…) as reader: async for item in reader`."""
        return self.node.log.read(session_id, after=after, follow=follow)

    def live(
        self, session_id: str | None = None, *, buffer_max: int | None = None
    ) -> contextlib.AbstractContextManager[Subscriber]:
        """Subscribe to live and durable events from now on; `with engine.live(…) as events: async for …`."""
        return self.node.log.live.subscribe(session_id, buffer_max)

    def changes(self, *, keys_max: int = 1_024) -> contextlib.AbstractContextManager[Changes]:
        """Coalesced hints of what changed; see `Changes`. `with engine.changes() as hints: async for …`."""
        return self.node.log.changes.subscribe(keys_max)

    async def sequences(self, session_ids: Sequence[str]) -> dict[str, int]:
        """The latest seq of each of these sessions that exists."""
        self._check_open()

        def work(tx: Reader) -> dict[str, int]:
            found = {session_id: tx.latest_seq(session_id) for session_id in session_ids}
            return {session_id: seq for session_id, seq in found.items() if seq >= 0}

        return await self.node.log.store.read(work)

    async def replay(self, stored: Sequence[ev.Stored]) -> int:
        """Write events as they were stored elsewhere; how many were new. Raises `ReplayDiverged`
        or `UnknownEvent`, and then nothing was changed.

        Listeners and live subscribers aren't told: nothing happened just now.
        """
        self._check_open()
        config, log = self.node.config, self.node.log

        def ring(count: int) -> None:
            for session_id in dict.fromkeys(item.event.session_id for item in stored):
                log.doorbells.ring(session_id)
            if count:
                log.changes.note(stored)

        return await log.store.write(lambda tx: housekeeping.replay(tx, stored, config), ring, label="replay")

    # --- how it is -----------------------------------------------------------------------------------

    def metrics(self) -> MetricsSnapshot:
        """Counters since the engine was opened."""
        log = self.node.log
        return log.metrics.snapshot(active=len(self.coordinator.active()), queued=log.store.health().queued)

    def health(self) -> Health:
        """Whether this node can do its work."""
        store = self.node.log.store.health()
        problems = [f"the store failed: {store.error}"] if store.error is not None else []
        if not store.writable and store.error is None:
            problems.append("the store can't be written")
        if self._closed:
            problems.append("the engine is closing")
        return Health(store=store, closing=self._closed, problems=problems)

    # --- closing -------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop admitting, settle or hand over what runs, end every live subscription."""
        self._closed = True
        config = self.node.config
        settling_ms = config.tool_grace_ms + 3 * config.settle_ms_max
        bound = self.node.deadline(config.shutdown_grace_ms + settling_ms)
        with self.node.clock.scope(bound, shield=True) as scope:
            await self.coordinator.shutdown()
            await self.node.locations.wait_closed()
        if scope.cancelled_caught:
            logger.error(
                "closing took too long; sessions left to expire: %s; locations torn down: %s",
                ", ".join(self.coordinator.active()) or "none",
                ", ".join(self.node.locations.held()) or "none",
            )
        if self.node.tools_running:
            # a task can't be abandoned in Trio: the host's block ends only when these do
            logger.error(
                "closing waits for tools that ignore their cancellation: %s",
                ", ".join(self.node.tools_running.values()),
            )
        self.node.log.close()


def _given(name: str, value: str | None) -> str | None:
    """An id as the caller gave it. An empty one is refused: taken for none, it would cost idempotency."""
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise EventError(f"{name} must be text that isn't empty, not {value!r}; leave it out for a fresh one")
    return clean_text(value)


class Session:
    """A session by its id, with the verbs of its engine."""

    def __init__(self, engine: Engine, session_id: str) -> None:
        self.engine = engine
        self.id = session_id

    def __repr__(self) -> str:
        return f"<Session {self.id}>"

    async def send(
        self, content: JSON, *, delivery: ev.Delivery = "steer", input_id: str | None = None
    ) -> Admission:
        """See `Engine.send`."""
        return await self.engine.send(self.id, content, delivery=delivery, input_id=input_id)

    async def run(self, content: JSON, *, delivery: ev.Delivery = "steer") -> TurnResult:
        """See `Engine.run`."""
        return await self.engine.run(self.id, content, delivery=delivery)

    async def wait_turn(self, input_id: str) -> TurnResult:
        """See `Engine.wait_turn`."""
        return await self.engine.wait_turn(self.id, input_id)

    async def interrupt(self) -> InterruptAnswer:
        """See `Engine.interrupt`."""
        return await self.engine.interrupt(self.id)

    async def cancel_input(self, input_id: str) -> bool:
        """See `Engine.cancel_input`."""
        return await self.engine.cancel_input(self.id, input_id)

    async def change_delivery(self, input_id: str, delivery: ev.Delivery) -> bool:
        """See `Engine.change_delivery`."""
        return await self.engine.change_delivery(self.id, input_id, delivery)

    async def resume(self) -> bool:
        """See `Engine.resume`."""
        return await self.engine.resume(self.id)

    async def wait_idle(self) -> None:
        """See `Engine.wait_idle`."""
        await self.engine.wait_idle(self.id)

    def log(self, *, after: int = -1, follow: bool = False) -> LogReader:
        """See `Engine.log`."""
        return self.engine.log(self.id, after=after, follow=follow)

    async def messages(self) -> tuple[Message, ...]:
        """The conversation so far, folded from the log."""
        async with self.log() as reader:
            return messages_of([item async for item in reader if isinstance(item, ev.Stored)])
