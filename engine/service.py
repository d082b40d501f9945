"""The front door: opens an engine, wires its parts, and closes it within a bound."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence

import trio

from engine.api import Engine
from engine.coordinator import Coordinator
from engine.errors import EngineFailed
from engine.limits import EngineConfig
from engine.locations import Locations, OpenLocation, services
from engine.log import Log
from engine.metrics import Metrics, MetricsObserver
from engine.node import Node
from engine.ports import Listener, Provider, Store, System, Tool
from engine.providers.scripted import ScriptedProvider
from engine.recovery import Recovery
from engine.store import open_store
from engine.system import real_system


@contextlib.asynccontextmanager
async def run_engine(
    store: Store,
    system: System,
    *,
    provider: Provider,
    tools: Sequence[Tool] = (),
    config: EngineConfig | None = None,
    listeners: Sequence[Listener] = (),
    locations: OpenLocation | None = None,
    metrics: MetricsObserver | None = None,
    owner_id: str | None = None,
    sweep: bool = True,
) -> AsyncIterator[Engine]:
    """An engine over a store that is open already. `open_engine` is the usual way in."""
    bounds = config or EngineConfig()
    host_error: BaseException | None = None
    engine_error: BaseException | None = None
    default = services(provider, tools)
    try:
        async with trio.open_nursery() as nursery:
            node = Node(
                owner_id=owner_id or system.ids.new("own"),
                log=Log(store, system, bounds, listeners, Metrics(metrics)),
                system=system,
                config=bounds,
                locations=Locations(nursery, system.clock, default, locations),
                tool_nursery=nursery,
                tool_limit=trio.CapacityLimiter(bounds.tools_per_node_max),
            )
            coordinator = Coordinator(node, nursery)
            engine = Engine(node, coordinator, Recovery(node, coordinator))
            if sweep:
                nursery.start_soon(engine.recovery.run, name=f"sweep/{node.owner_id}")
            try:
                yield engine
            except BaseException as exc:
                host_error = exc  # it leaves as it came, not wrapped in the nursery's group
            finally:
                await engine.close()
                nursery.cancel_scope.cancel()
    except BaseException as exc:
        engine_error = exc
    told = _told(engine_error, host_error)
    try:
        if told is not None:
            raise told
    finally:
        del told, host_error, engine_error  # they hold tracebacks that hold this frame


def _told(engine: BaseException | None, host: BaseException | None) -> BaseException | None:
    """The one error that reaches the host: the machinery's, else a Ctrl-C while closing, else the host's own.

    Cancellations of the engine's tasks come last: they must not replace what the host raised.
    """
    leaves = list(_leaves(engine))
    for exc in leaves:
        if not isinstance(exc, trio.Cancelled | KeyboardInterrupt):
            failed = EngineFailed(f"the engine's own machinery failed: {exc!r}")
            failed.__cause__ = exc
            if host is not None and not isinstance(host, trio.Cancelled):
                failed.add_note(f"the host's block had failed by itself: {host!r}")
            return failed
    interrupts = [exc for exc in leaves if isinstance(exc, KeyboardInterrupt)]
    return interrupts[0] if interrupts else host or engine


def _leaves(error: BaseException | None) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    elif error is not None:
        yield error


@contextlib.asynccontextmanager
async def open_engine(
    path: str | os.PathLike[str],
    *,
    provider: Provider | None = None,
    tools: Sequence[Tool] = (),
    config: EngineConfig | None = None,
    listeners: Sequence[Listener] = (),
    locations: OpenLocation | None = None,
    metrics: MetricsObserver | None = None,
    system: System | None = None,
) -> AsyncIterator[Engine]:
    """Open (or create) a database file and run an engine on it until the block is left.

    Without a `provider`, a scripted one answers each request with one fixed line.

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
            store,
            surroundings,
            provider=provider or ScriptedProvider(surroundings.clock),
            tools=tools,
            config=bounds,
            listeners=listeners,
            locations=locations,
            metrics=metrics,
        ) as engine,
    ):
        yield engine
