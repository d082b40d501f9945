"""One simulated node: the real engine on doubles of its ports, incarnation after incarnation."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from engine.api import Engine
from engine.errors import ConfigError
from engine.locations import services
from engine.ports import System, Tool
from engine.providers.scripted import ScriptedProvider
from engine.service import run_engine
from sim.clock import NodeClock, WallClock
from sim.gate import Node, NodeState
from sim.ids import SimChance, SimIds
from sim.kernel import NS_PER_MS
from sim.listeners import ListenerDouble
from sim.locations import LocationDouble
from sim.provider import SimProvider
from sim.roster import acting_as
from sim.scenario import Node as NodeSpec
from sim.store import SimStore
from sim.tools import ToolDouble, ToolNotes

if TYPE_CHECKING:
    from sim.world import World


class Life(enum.Enum):
    """Where a node stands."""

    DOWN = enum.auto()
    UP = enum.auto()
    PAUSED = enum.auto()


class SimNode:
    """A machine of the scenario. Its wall clock outlives its incarnations."""

    def __init__(self, world: World, spec: NodeSpec) -> None:
        self.spec = spec
        self.engine: Engine | None = None
        self.store: SimStore | None = None
        self.clock: NodeClock | None = None
        self.node: Node | None = None
        self.booted = trio.Event()  #: set once its first engine is up, or was refused
        self.suspended = False  #: its monotonic clock stood still at some time
        self.rate_changed = False  #: its monotonic clock ran at another rate at some time
        self.owner = spec.owner  #: the owner id of this incarnation; None is a fresh one
        self.wall = WallClock(spec.clock)
        self._world = world
        self._scope = trio.CancelScope()
        self._stop = trio.Event()
        self._ended = trio.Event()
        self._monotonic_ppm = spec.clock.monotonic_ppm
        self._holds: dict[object, bool] = {}  # why it stands still; True: its monotonic clock does, too
        self._lingers = False  # a gate takes its time

    @property
    def name(self) -> str:
        """Its name in the scenario."""
        return self.spec.name

    @property
    def life(self) -> Life:
        """Down, up, or paused."""
        if self.node is None or self.node.state is NodeState.DEAD or self.engine is None:
            return Life.DOWN
        return Life.PAUSED if self.node.state is NodeState.PAUSED else Life.UP

    @property
    def starting(self) -> bool:
        """Whether it was started and its engine isn't up yet."""
        return (
            self.node is not None
            and self.node.state is not NodeState.DEAD
            and self.engine is None
            and not self._ended.is_set()
        )

    def start_if_down(self, owner: str | None = None) -> None:
        """Start the node again, unless somebody did so already."""
        if self.life is Life.DOWN and not self.starting:
            self.start(owner)

    def start(self, owner: str | None = None) -> None:
        """Start the next incarnation, under its own owner id or this one."""
        self._scope, self._stop, self._ended = trio.CancelScope(), trio.Event(), trio.Event()
        self._holds, self._lingers = {}, False
        self.owner = owner or self.spec.owner
        self.wall.boot(self._world.kernel.now_ns)
        self.node = self._world.kernel.add_node(self.name)
        self.clock = NodeClock(self._world.kernel, self.node, self.spec.clock, wall=self.wall)
        if self._monotonic_ppm != self.spec.clock.monotonic_ppm:
            self.clock.set_monotonic_ppm(self._monotonic_ppm)
        with acting_as(self.node):
            self._world.nursery.start_soon(self._live, self.node, self.clock, name="node")

    async def _live(self, node: Node, clock: NodeClock) -> None:
        with self._world.kernel.ending():
            await clock.checkpoint()
            async with trio.open_nursery() as nursery:
                self.store = store = SimStore(self._world.database, self._world.kernel, node, clock)
                store.peek = self._world.triggers.peeks
                store.observe(self._world.watch(self))
                store.start(nursery)
                try:
                    with self._scope:
                        await self._serve(node, clock, store)
                except Exception as exc:
                    if not self._world.kernel.frozen:
                        self._world.ledger.crashes.append(f"the engine of {node} crashed: {exc!r}")
                finally:
                    self.engine = None
                    self._ended.set()
                nursery.cancel_scope.cancel()

    async def _serve(self, node: Node, clock: NodeClock, store: SimStore) -> None:
        world, kernel = self._world, self._world.kernel
        system = System(clock=clock, ids=SimIds(kernel, node), chance=SimChance(kernel, node, world.salt))
        provider, tools = self._provider(node, clock, system), self._tools(node, clock, system)
        specs = world.scenario.locations
        locations = LocationDouble(kernel, node, clock, specs, services(provider, tools)) if specs else None
        listeners = [one for one in world.scenario.listeners if one.node == self.name]
        try:
            async with run_engine(
                store,
                system,
                provider=provider,
                tools=tools,
                config=world.scenario.engine_config(),
                listeners=[
                    ListenerDouble(kernel, node, clock, listeners),
                    *world.project.listeners_of(system),
                ],
                locations=None if locations is None else locations.open,
                owner_id=self.owner,
                sweep=self.spec.sweep,
            ) as engine:
                self.engine = engine
                self.booted.set()
                await self._stop.wait()
                await clock.checkpoint()
        except ConfigError as exc:
            world.config_error = exc
            self.booted.set()

    def _provider(self, node: Node, clock: NodeClock, system: System) -> SimProvider:
        world = self._world
        inner = world.project.provider_or(ScriptedProvider(clock, choose=world.replies), system, clock)
        return SimProvider(world.kernel, node, inner, world.ledger, world.moment)

    def _tools(self, node: Node, clock: NodeClock, system: System) -> list[Tool]:
        world = self._world
        notes = ToolNotes(kernel=world.kernel, node=node, ledger=world.ledger, moment=world.moment)
        doubles = [
            ToolDouble(
                spec=spec,
                notes=notes,
                clock=clock,
                engine=lambda: self.engine,
                session_id=world.session_id,
            ).tool()
            for spec in world.scenario.tools
        ]
        return world.project.tools_beside(doubles, system, notes, clock)

    # --- what befalls it -----------------------------------------------------------------------------

    def cancel(self) -> None:
        """The host cancels the engine: clean-up runs, and may write."""
        self._scope.cancel()

    async def shut_down(self) -> None:
        """The host leaves the engine's block, and waits for it to close."""
        self._stop.set()
        await self._ended.wait()
        await self._world.kernel.gate("shut down", node=self._world.kernel.world)

    def cut_power(self) -> None:
        """None of its code runs again."""
        assert self.node is not None
        self._world.kernel.kill_when_parked(self.node)
        self.engine = None

    def pause(self) -> Callable[[], None]:
        """The process stands still until the function returned is called; its clocks go on."""
        return self._hold(monotonic_stops=False)

    def suspend(self, *, monotonic_stops: bool = True) -> Callable[[], None]:
        """The machine sleeps, its monotonic clock with it or not, until the function returned is called."""
        self.suspended = self.suspended or monotonic_stops
        return self._hold(monotonic_stops=monotonic_stops)

    def _hold(self, *, monotonic_stops: bool) -> Callable[[], None]:
        """Stand still, for one of several reasons; each ends by itself, and a restart ends them all."""
        assert self.node is not None
        assert self.clock is not None
        node, clock, reason = self.node, self.clock, object()

        def end() -> None:
            if self._holds.pop(reason, None) is None:
                return  # the node is another incarnation by now
            if monotonic_stops and not any(self._holds.values()):
                clock.start_monotonic()
            if not self._holds:
                self._world.kernel.resume(node)

        self._holds[reason] = monotonic_stops
        if monotonic_stops:
            clock.stop_monotonic()
        self._world.kernel.pause(node)
        return end

    def slow(self, gate_ms: int) -> Callable[[], None]:
        """Each of its gates takes so long, until the function returned is called."""
        slowed = self._world.slowed
        slowed[self.name] = gate_ms

        def end() -> None:
            slowed.pop(self.name, None)

        return end

    def linger(self, ms: int) -> None:
        """A gate of it takes so long: nothing of it runs meanwhile."""
        if self._lingers:
            return
        kernel, node, go_on = self._world.kernel, self.node, self.pause()
        self._lingers = True

        def end() -> None:
            go_on()
            if self.node is node:
                self._lingers = False

        kernel.at(kernel.now_ns + ms * NS_PER_MS, end, label=f"slow {self.name}")

    def set_monotonic_ppm(self, ppm: int) -> None:
        """The machine's monotonic clock runs at another rate from now on, also after a restart."""
        self.rate_changed = True
        self._monotonic_ppm = ppm
        if self.clock is not None and self.node is not None and self.node.state is not NodeState.DEAD:
            self.clock.set_monotonic_ppm(ppm)
