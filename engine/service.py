"""The front door: opens an engine, wires its parts, and closes it within a bound."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import AsyncIterator, Sequence

import trio

from engine import admission
from engine import events as ev
from engine.codec import clean_text
from engine.coordinator import Coordinator
from engine.endings import Ending
from engine.errors import ConfigError, EngineClosed, EngineFailed, SessionExists
from engine.history import History
from engine.interrupting import Interrupter
from engine.limits import EngineConfig
from engine.live import Subscriber
from engine.log import Log
from engine.node import Node, Services
from engine.plan import Plan
from engine.ports import Listener, Provider, Store, System, Tool, Transaction
from engine.reading import LogReader
from engine.records import JSON, Admission, InterruptAnswer, Message, SessionRow
from engine.recovery import Recovery
from engine.store import open_store
from engine.system import real_system
from engine.turns import TurnResult, wait_turn

logger = logging.getLogger("fencepost")


class Engine:
    """One node. Made by `open_engine`; every verb may be called from any task of the host."""

    def __init__(self, node: Node, coordinator: Coordinator, recovery: Recovery) -> None:
        self.node = node
        self.coordinator = coordinator
        self.recovery = recovery
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
        made = session_id or self.node.system.ids.new("ses")
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
                    f"there is a session {made} already; leave session_id out to get a fresh one"
                )
            return Plan(events=[created], value=None)

        await self.node.log.publish(made, plan, label="session.created")
        return Session(self, made)

    def session(self, session_id: str) -> Session:
        """A session by its id; nothing is looked up before its first use."""
        return Session(self, session_id)

    async def sessions(self, *, after: str = "", limit: int = 100) -> list[SessionRow]:
        """A page of sessions by id, tombstones included."""
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
            input_id=input_id or self.node.system.ids.new("inp"),
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

    # --- closing -------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop admitting, settle or hand over what runs, end every live subscription."""
        self._closed = True
        config = self.node.config
        settling_ms = config.tool_grace_ms + 3 * config.settle_ms_max
        bound = self.node.deadline(config.shutdown_grace_ms + settling_ms)
        with self.node.clock.scope(bound, shield=True) as scope:
            await self.coordinator.shutdown()
        if scope.cancelled_caught:
            logger.error(
                "closing took too long; these sessions are left to expire: %s",
                ", ".join(self.coordinator.active()),
            )
        self.node.log.close()


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
        history = History()
        async with self.log() as reader:
            async for item in reader:
                if isinstance(item, ev.Stored):
                    history.advance([item])
        return history.messages()


@contextlib.asynccontextmanager
async def run_engine(
    store: Store,
    system: System,
    *,
    provider: Provider,
    tools: Sequence[Tool] = (),
    config: EngineConfig | None = None,
    listeners: Sequence[Listener] = (),
    owner_id: str | None = None,
    sweep: bool = True,
) -> AsyncIterator[Engine]:
    """An engine over a store that is open already. `open_engine` is the usual way in."""
    bounds = config or EngineConfig()
    crash: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            node = Node(
                owner_id=owner_id or system.ids.new("own"),
                log=Log(store, system, bounds, listeners),
                system=system,
                config=bounds,
                services=Services(provider=provider, tools=_by_name(tools)),
                tool_nursery=nursery,
            )
            coordinator = Coordinator(node, nursery)
            engine = Engine(node, coordinator, Recovery(node, coordinator))
            if sweep:
                nursery.start_soon(engine.recovery.run, name=f"sweep/{node.owner_id}")
            try:
                yield engine
            except Exception as exc:
                crash = exc  # the host's own error leaves as it came, not wrapped in a group
            finally:
                await engine.close()
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        failed = group.subgroup(lambda exc: not isinstance(exc, trio.Cancelled))
        if failed is None:
            raise
        raise EngineFailed(f"the engine's own machinery failed: {_first(failed)!r}") from _first(failed)
    if crash is not None:
        raise crash


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


def _by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in named:
            raise ConfigError(f"two tools are named {tool.name!r}; give each a name of its own")
        named[tool.name] = tool
    return named


@contextlib.asynccontextmanager
async def open_engine(
    path: str | os.PathLike[str],
    *,
    provider: Provider,
    tools: Sequence[Tool] = (),
    config: EngineConfig | None = None,
    listeners: Sequence[Listener] = (),
    system: System | None = None,
) -> AsyncIterator[Engine]:
    """Open (or create) a database file and run an engine on it until the block is left.

    Leaving is a graceful shutdown within a bound. Raises `ConfigError`, `StoreFileError`; a fault of the
    engine's own machinery reaches the host as one `EngineFailed`.
    """
    bounds = config or EngineConfig()
    surroundings = system or real_system()
    async with (
        open_store(
            path,
            clock_now_ms=surroundings.clock.now_ms,
            write_timeout_ms=bounds.write_timeout_ms,
            poll_ms=bounds.poll_ms,
            batch_works_max=bounds.batch_works_max,
        ) as store,
        run_engine(
            store, surroundings, provider=provider, tools=tools, config=bounds, listeners=listeners
        ) as engine,
    ):
        yield engine
