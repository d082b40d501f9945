"""Running a test in virtual time, and opening an engine in it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar, TypeVarTuple

import trio
import trio.testing

from engine.api import Engine
from engine.limits import EngineConfig
from engine.locations import OpenLocation
from engine.metrics import MetricsObserver
from engine.ports import Listener, Provider, Tool
from engine.providers.scripted import ScriptedProvider
from engine.service import run_engine
from engine.store.memory import MemoryStore
from engine.testing.checking import assert_sound
from engine.testing.world import VirtualClock, World

T = TypeVar("T")
Args = TypeVarTuple("Args")

VIRTUAL_S_MAX = 3_600.0
"""A test that hasn't ended within an hour of virtual time waits for what will never happen."""


def run_test(test: Callable[[*Args], Awaitable[T]], *args: *Args, virtual_s_max: float = VIRTUAL_S_MAX) -> T:
    """Run `await test(*args)` under a clock that jumps to the next deadline whenever all tasks wait.

    Returns what the test returns, raises what it raises, and `TimeoutError` after `virtual_s_max` seconds of
    virtual time. The jump doesn't wait for threads: a tool under test that uses one needs another harness.
    """

    async def main() -> T:
        clock = VirtualClock()
        with clock.scope(clock.monotonic() + virtual_s_max):
            return await test(*args)
        raise TimeoutError(f"the test hadn't ended after {virtual_s_max:g} s of virtual time")

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@contextlib.asynccontextmanager
async def open_test_engine(
    *,
    provider: Provider | None = None,
    tools: Sequence[Tool] = (),
    config: EngineConfig | None = None,
    listeners: Sequence[Listener] = (),
    locations: OpenLocation | None = None,
    metrics: MetricsObserver | None = None,
    world: World | None = None,
    check: bool = True,
) -> AsyncIterator[Engine]:
    """An engine in virtual time over a database in memory; like `open_engine`, but that nothing is real.

    When the block is left without an error, `assert_sound` checks the whole database, unless `check` is
    False. Raises `RuntimeError` outside of a Trio run in virtual time.
    """
    virtual = isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    if not virtual:
        raise RuntimeError(
            "a test engine needs virtual time: run the test by engine.testing.run_test,"
            " or let it have pytest-trio's autojump_clock"
        )
    shared = world or World()
    store = shared.database.open_store(shared.clock.now_ms)
    try:
        async with run_engine(
            store,
            shared.system,
            provider=provider or ScriptedProvider(shared.clock),
            tools=tools,
            config=config,
            listeners=listeners,
            locations=locations,
            metrics=metrics,
        ) as engine:
            yield engine
    finally:
        store.close()
    if check:
        assert_sound(engine)


def crash(engine: Engine) -> None:
    """Cut a test engine off from its database, as if its process were killed at this moment.

    What it committed stays, its claims too. Leave its block, and open another engine on the same world: that
    one takes over once the lease has run out.
    """
    store = engine.node.log.store
    assert isinstance(store, MemoryStore), "only a test engine can be crashed"
    store.close()
