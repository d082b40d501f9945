"""The locations of each node: they open, slowly or not at all, as the scenario says."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from engine.locations import Services
from sim.clock import NodeClock
from sim.gate import Node
from sim.kernel import Kernel
from sim.scenario import Location


class LocationBroken(Exception):
    """A location can't be opened, as a scenario asked for."""


class LocationDouble:
    """All locations of one incarnation of a node; each offers the node's own provider and tools."""

    def __init__(
        self, kernel: Kernel, node: Node, clock: NodeClock, specs: Sequence[Location], offered: Services
    ) -> None:
        self._kernel = kernel
        self._node = node
        self._clock = clock
        self._specs = {spec.name: spec for spec in specs}
        self._offered = offered

    @contextlib.asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[Services]:
        """`engine.locations.OpenLocation`."""
        spec = self._specs[name]
        self._kernel.note("location", self._node, "open", name=name)
        await self._clock.sleep(spec.takes_ms / 1000)
        if spec.fails is not None:
            raise LocationBroken(spec.fails)
        try:
            yield self._offered
        finally:
            self._kernel.note("location", self._node, "close", name=name)
