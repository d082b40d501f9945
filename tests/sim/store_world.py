"""A few simulated nodes over one database, for tests of the store."""

from __future__ import annotations

import trio

from sim.clock import NodeClock, RightClock
from sim.database import SimDatabase
from sim.kernel import NS_PER_MS, Kernel
from sim.roster import acting_as
from sim.store import SimStore
from sim.tape import Tape
from sim.trace import Trace
from tests.contracts.store_cases import append, seqs


class World:
    """Some nodes over one database; `clients` are (node name, task name, async function of the store)."""

    def __init__(self, *draws, tape=None, nodes="a", store_draws=()):
        self.kernel = Kernel(tape or Tape.replay({"schedule": draws, "store": store_draws}), Trace())
        self.database = SimDatabase()
        self.stores = {}
        self.names = nodes
        self.prepare = lambda world: None

    def run(self, *clients):
        self.kernel.run(self.main, clients)
        return self

    async def main(self, clients):
        kernel = self.kernel
        with kernel.ending():
            async with trio.open_nursery() as nursery:
                for name in self.names:
                    self.add_node(name, nursery)
                self.prepare(self)
                async with trio.open_nursery() as inner:
                    for name, task_name, body in clients:
                        store = self.stores[name]
                        with acting_as(store._node):
                            inner.start_soon(self.client, body, store, name=task_name)
                    await kernel.sleep_until(1000 * NS_PER_MS, node=kernel.world)
                    inner.cancel_scope.cancel()
                    kernel.freeze(nursery.cancel_scope)

    def add_node(self, name, nursery):
        node = self.kernel.add_node(name)
        clock = NodeClock(self.kernel, node, RightClock(offset_ms=100 * ord(name)))
        self.stores[name] = SimStore(self.database, self.kernel, node, clock)
        self.stores[name].start(nursery)

    async def client(self, body, store):
        await body(store)

    def on_window(self, window, act):
        """Call `act(gate)` at the first gate of that window."""
        seen = []

        def hook(gate):
            if gate.info.get("window") == window and not seen:
                seen.append(gate)
                return act(gate)
            return None

        self.kernel.on_park = hook

    def entries(self, *kinds):
        return [entry for entry in self.kernel.trace.entries if entry.kind in kinds]

    def seqs(self, session_id="ses_a"):
        return seqs(session_id)(self.database.reader())


def writing(session_id="ses_a", after=None, log=None):
    """A client that appends one event and notes how that ended."""

    async def body(store):
        try:
            outcome = await store.write(append(session_id), after, label=f"append {session_id}")
        except BaseException as exc:
            outcome = type(exc).__name__
            raise
        finally:
            if log is not None:
                log.append(outcome)

    return body


def suppressed(body):
    """`body` whose ordinary errors end there."""

    async def quiet(store):
        try:
            await body(store)
        except Exception:
            return

    return quiet
