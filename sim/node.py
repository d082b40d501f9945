"""One simulated node: the real engine on doubles of its ports, incarnation after incarnation."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import trio

from engine.api import Engine
from engine.errors import ConfigError
from engine.locations import services
from engine.ports import System
from engine.service import run_engine
from sim.clock import NodeClock, WallClock
from sim.gate import Node, NodeState
from sim.ids import SimChance, SimIds
from sim.listeners import ListenerDouble
from sim.locations import LocationDouble
from sim.provider import SimProvider
from sim.roster import acting_as
from sim.scenario import Node as NodeSpec
from sim.store import SimStore
from sim.tools import ToolDouble

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
        self.wall = WallClock(spec.clock)
        self._world = world
        self._scope = trio.CancelScope()
        self._stop = trio.Event()
        self._ended = trio.Event()

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

    def start_if_down(self) -> None:
        """Start the node again, unless somebody did so already."""
        if self.life is Life.DOWN and not self.starting:
            self.start()

    def start(self) -> None:
        """Start the next incarnation."""
        self._scope, self._stop, self._ended = trio.CancelScope(), trio.Event(), trio.Event()
        self.node = self._world.kernel.add_node(self.name)
        self.clock = NodeClock(self._world.kernel, self.node, self.spec.clock, wall=self.wall)
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
        tools = [
            ToolDouble(
                spec=spec, kernel=kernel, node=node, clock=clock, ledger=world.ledger, moment=world.moment
            ).tool()
            for spec in world.scenario.tools
        ]
        provider = SimProvider(kernel, node, clock, world.replies, world.ledger, world.moment)
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
                listeners=[ListenerDouble(kernel, node, clock, listeners)],
                locations=None if locations is None else locations.open,
                owner_id=self.spec.owner,
                sweep=self.spec.sweep,
            ) as engine:
                self.engine = engine
                self.booted.set()
                await self._stop.wait()
                await clock.checkpoint()
        except ConfigError as exc:
            world.config_error = exc
            self.booted.set()

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

    def pause(self) -> None:
        """The process stands still; its clocks go on."""
        assert self.node is not None
        self._world.kernel.pause(self.node)

    def resume(self) -> None:
        """The process goes on."""
        assert self.node is not None
        self._world.kernel.resume(self.node)

    def suspend(self) -> None:
        """The machine sleeps, its monotonic clock with it."""
        assert self.clock is not None
        self.suspended = True
        self.clock.suspend()

    def wake_up(self) -> None:
        """The machine goes on."""
        assert self.clock is not None
        self.clock.wake_up()
