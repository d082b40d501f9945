"""The listener double of each node: always there, so that `notify` is a place to interrupt at."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from engine.events import Stored
from sim.clock import NodeClock
from sim.gate import Node
from sim.kernel import Kernel
from sim.scenario import Listener

HANG_S = 10 * 365 * 86_400.0


class ListenerFailed(Exception):
    """A listener's own error, as a scenario asked for."""


class ListenerDouble:
    """Passes a gate for each event, then misbehaves if a scenario asked for it."""

    def __init__(self, kernel: Kernel, node: Node, clock: NodeClock, specs: Sequence[Listener]) -> None:
        self._kernel = kernel
        self._node = node
        self._clock = clock
        self._specs = list(specs)
        self._seen: dict[int, int] = {}

    async def __call__(self, stored: Stored) -> None:
        """`engine.ports.Listener`."""
        event = stored.event
        key = (event.type, event.session_id, getattr(event, "assistant_message_id", None))
        await self._kernel.gate("listener", node=self._node, info={"window": "notify", "events": (key,)})
        self._kernel.note("listener", self._node, event.type, seq=stored.seq)
        for number, spec in enumerate(self._specs):
            if spec.event == event.type:
                self._seen[number] = self._seen.get(number, 0) + 1
                if spec.nth in (0, self._seen[number]):
                    await self._misbehave(spec)

    async def _misbehave(self, spec: Listener) -> None:
        match spec.does:
            case "raises":
                raise ListenerFailed(f"the listener of {self._node.name} raises at {spec.event}")
            case "hangs":
                await self._clock.sleep(HANG_S)
            case "sleeps":
                await self._clock.sleep((1000 if spec.for_ms is None else spec.for_ms) / 1000)
            case "cancelled":
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await self._clock.checkpoint()
