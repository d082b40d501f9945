"""Engines and logs on a real store and real Trio, for the tests of what the simulator's doubles replace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw
import attrs
import trio

from engine import events as ev
from engine.api import Engine
from engine.events import Event, Stored
from engine.limits import EngineConfig
from engine.locations import Locations, services
from engine.log import Log, Published
from engine.node import Node
from engine.plan import Plan
from engine.ports import Listener, ProviderEvent, Tool
from engine.providers.script import Emit, Move, Reply, says
from engine.providers.scripted import InTurn
from engine.reading import LogReader, Synced
from engine.records import Claim, Request
from engine.service import open_engine
from engine.store import open_store
from engine.system import RealClock, real_system
from engine.verify import Findings, read_session, session_ids, verify_session

BUSY_MS = 10_000
"""The store's own writer may hold the lock for a moment."""


T = TypeVar("T")

FAIL_SAFE_S = 50
"""A test that would hang fails instead; nothing that passes comes near it."""

CONFIG = EngineConfig(poll_ms=5, interrupt_ms_max=30_000)


def created(session_id: str, title: str = "") -> ev.SessionCreated:
    return ev.SessionCreated(
        session_id=session_id, title=title, location=None, model="default", agent="default", system=""
    )


def renamed(session_id: str, title: str) -> ev.SessionRenamed:
    return ev.SessionRenamed(session_id=session_id, title=title)


@asynccontextmanager
async def open_log(
    path: Path, *, listeners: Sequence[Listener] = (), config: EngineConfig = CONFIG, **options: Any
) -> AsyncIterator[Log]:
    """A log over the file, in a block that can't hang."""
    system = options.pop("system", None) or real_system()
    with trio.fail_after(FAIL_SAFE_S):
        async with open_store(
            path, clock_now_ms=system.clock.now_ms, poll_ms=config.poll_ms, **options
        ) as store:
            yield Log(store, system, config, listeners)


def node_of(log: Log, nursery: trio.Nursery, owner_id: str = "own_test") -> Node:
    """A node around a log, whose model says `hello`."""
    system = real_system()
    return Node(
        owner_id=owner_id,
        log=log,
        system=system,
        config=CONFIG,
        locations=Locations(nursery, system.clock, services(Model()), None),
        tool_nursery=nursery,
        tool_limit=trio.CapacityLimiter(1),
    )


async def publish(log: Log, *events: Event, **options: Any) -> Published[None]:
    """Publish events of one session, named by the first."""
    plan: Plan[None] = Plan(events=events, value=None)
    return await log.publish(events[0].session_id, lambda tx, row: plan, **options)


@asynccontextmanager
async def engine_on(
    path: Path,
    provider: Any = None,
    *,
    config: EngineConfig = CONFIG,
    tools: Sequence[Tool] = (),
    **more: Any,
) -> AsyncIterator[Engine]:
    """An engine over the file, in a block that can't hang; without a provider it says `hello`."""
    with trio.fail_after(FAIL_SAFE_S):
        async with open_engine(
            path, provider=provider or Model(says("hello")), config=config, tools=tools, **more
        ) as engine:
            yield engine


class Model:
    """A scripted model that stops before each answer until it is let go, and tells when it was asked.

    `open_door` lets every answer through; `hold` makes them wait. `asked` holds the requests in order.
    """

    def __init__(self, *replies: Reply, held: bool = False) -> None:
        self.asked: list[Request] = []
        self._choose = InTurn(replies or (says("hello"),))
        self._door = trio.Event()
        self._rung = trio.Event()
        if not held:
            self._door.set()

    def open_door(self) -> None:
        self._door.set()

    def hold(self) -> None:
        self._door = trio.Event()

    async def wait_asked(self, count: int = 1) -> None:
        """Wait until `count` requests were opened."""
        while len(self.asked) < count:
            await self._rung.wait()

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        self.asked.append(request)
        rung, self._rung = self._rung, trio.Event()
        rung.set()
        yield _Answer(self._door, self._choose(request).moves())


@attrs.define
class _Answer:
    _door: trio.Event
    _moves: Iterator[Move]

    def __aiter__(self) -> _Answer:
        return self

    async def __anext__(self) -> ProviderEvent:
        await self._door.wait()
        await trio.lowlevel.checkpoint()
        for move in self._moves:
            assert isinstance(move, Emit), "this model has no clock to wait by"
            return move.event
        raise StopAsyncIteration


# --- reading -----------------------------------------------------------------------------------------


async def stored_in(log: Any, session_id: str, after: int = -1) -> list[Stored]:
    """The stored events of a session."""
    return [item for item in await read_all(log.read(session_id, after=after)) if isinstance(item, Stored)]


async def read_all(reader: LogReader) -> list[Stored | Synced]:
    """All that a reader hands out."""
    async with reader:
        return [item async for item in reader]


async def types_in(engine: Engine, session_id: str) -> list[str]:
    """The types of a session's events."""
    return [item.type for item in await stored_in(engine.node.log, session_id)]


async def wait_for(engine: Engine, session_id: str, type: str, *, count: int = 1) -> Stored:
    """Follow the log until the session has `count` events of a type."""
    seen = 0
    async with engine.log(session_id, follow=True) as reader:
        async for item in reader:
            if isinstance(item, Stored) and item.type == type:
                seen += 1
                if seen == count:
                    return item
    raise AssertionError(f"the log of {session_id} ended before {count} of {type}")


async def until(check: Callable[[], bool]) -> None:
    """Pass checkpoints until `check` holds; the block's fail-safe ends the wait."""
    while not check():
        await trio.lowlevel.checkpoint()


async def claim_of(log: Log, session_id: str) -> Claim | None:
    return await log.store.read(lambda tx: tx.claim(session_id))


async def findings_of(path: Path) -> dict[str, Findings]:
    """What `verify` finds in each session of the file."""
    async with open_store(path, clock_now_ms=RealClock().now_ms, create=False) as store:
        records = await store.read(lambda tx: [read_session(tx, one) for one in session_ids(tx)])
        return {record.session_id: verify_session(record) for record in records}


async def assert_clean(path: Path, *, at_rest: bool = True) -> None:
    """Every invariant that a database can show holds, and nothing is left to do."""
    for session_id, findings in (await findings_of(path)).items():
        assert findings.ok, (session_id, findings.breaches, findings.unreadable)
        assert not (at_rest and findings.pending), (session_id, findings.pending)


def lock_of(path: Path) -> apsw.Connection:
    """A foreign connection that holds the write lock until it is closed."""
    other = apsw.Connection(str(path))
    other.set_busy_timeout(BUSY_MS)
    other.execute("BEGIN IMMEDIATE")
    return other
