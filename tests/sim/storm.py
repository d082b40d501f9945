"""A run with everything that could make runs differ: fan-out, channels, events, shields, scopes, timers.

`python -m tests.sim.storm SEED SIZE` prints its digest, for comparing processes.
"""

from __future__ import annotations

import math
import sys

import trio

from sim.clock import NodeClock, RightClock
from sim.ids import SimChance, SimIds, draw_salt
from sim.kernel import Kernel
from sim.roster import acting_as
from sim.tape import Tape
from sim.trace import Trace


class Storm:
    """Two nodes with `size` workers each, and one collector per node."""

    def __init__(self, tape, *, size=5, flaw=None, keep=True):
        self.kernel = Kernel(tape, Trace(keep=keep))
        self.size = size
        self.salt = draw_salt(tape)
        self.flaw = flaw
        self.shared = []  # appended to by all, always behind a gate

    def run(self):
        self.kernel.run(self.main)
        return self

    @property
    def trace(self):
        return self.kernel.trace

    async def main(self):
        async with trio.open_nursery() as nursery:
            for name, ppm in (("a", 200), ("b", -150)):
                node = self.kernel.add_node(name)
                clock = NodeClock(self.kernel, node, RightClock(monotonic_ppm=ppm, offset_ms=len(name)))
                with acting_as(node):
                    nursery.start_soon(self.node_main, node, clock, name=f"{name} main")
        self.kernel.trace.record("end", "world.0", "main", "shared", value=tuple(self.shared))

    async def node_main(self, node, clock):
        kernel = self.kernel
        ids, chance = SimIds(kernel, node), SimChance(kernel, node, self.salt)
        send, receive = trio.open_memory_channel(math.inf)
        start = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.collect, node, clock, receive, name="collector")
            async with send, trio.open_nursery() as workers:
                for nth in range(self.size):
                    workers.start_soon(
                        self.work, node, clock, ids, chance, start, send.clone(), nth, name=f"worker {nth}"
                    )
                await clock.sleep(0.01)
                start.set()  # wakes them all at once, in an order of Trio's
                with clock.scope(clock.monotonic() + 0.5) as scope:
                    await trio.sleep_forever()
                assert scope.cancelled_caught
                if self.size > 2:
                    workers.cancel_scope.cancel()

    async def work(self, node, clock, ids, chance, start, send, nth):
        async with send:
            await start.wait()
            name = ids.new("job")
            pause = chance.fraction() * 0.2
            if self.flaw == "shared without a gate":
                self.shared.append(nth)
            await clock.checkpoint()
            self.shared.append(name)
            try:
                await clock.sleep(pause + 0.1 * (nth % 3))
                await send.send((name, clock.now_ms()))
                with clock.scope(clock.monotonic() + 0.05 * (1 + nth % 2)):
                    await trio.sleep_forever()
                await self.kernel.gate("before the end", node=node)
                await clock.sleep(0.3)
                await send.send((name, "late"))
            finally:
                with clock.scope(clock.monotonic() + 1.0, shield=True):
                    await clock.sleep(0.02 * (nth % 2))
                    self.shared.append(("cleaned", name))

    async def collect(self, node, clock, receive):
        seen = set()
        async with receive:
            async for item in receive:
                await self.kernel.gate("collected", node=node)
                seen.add(str(item))
                value = list(seen) if self.flaw == "set order" else sorted(seen)
                self.kernel.note("collected", node, "items", value=value)
                self.shared.append(item)


def main():
    seed, size = sys.argv[1], int(sys.argv[2])
    print(Storm(Tape.seeded(seed), size=size).run().trace.digest())  # noqa: T201


if __name__ == "__main__":
    main()
