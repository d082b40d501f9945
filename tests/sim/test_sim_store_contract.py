"""The contract of `engine.ports.Store`, over the simulator's store."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from sim.clock import NodeClock
from sim.database import SimDatabase
from sim.kernel import Kernel
from sim.roster import Roster
from sim.store import SimStore
from sim.tape import Tape
from sim.trace import Trace
from tests.contracts import test_store_contract, test_store_contract_commit
from tests.contracts.store_cases import NOW_MS, Faults, StoreUnderTest
from tests.contracts.test_store_contract import *  # noqa: F403
from tests.contracts.test_store_contract_commit import *  # noqa: F403


class AnyNames(Roster):
    """Gives each task a chain of its own: the contract's tasks have no names, and need no reproducing."""

    def chain(self, node):
        try:
            task = trio.lowlevel.current_task()
        except RuntimeError:
            return super().chain(node)
        chain = node.chain(f"{task.name} {id(task)}")
        chain.owner = task
        return chain


class Runs:
    """Runs cases inside the simulator, over one tape."""

    def __init__(self, tape):
        self.tape = tape
        self.kernel = None

    def run(self, open_store, case):
        async def main():
            async with open_store() as sut:
                await case(sut)

        self.run_main(main)

    def run_main(self, main):
        self.kernel = Kernel(self.tape, Trace(keep=False))
        self.kernel.roster = AnyNames(self.kernel.trace, self.kernel.fail)
        self.kernel.run(main)

    @asynccontextmanager
    async def open_store(self, *, now_ms=lambda: NOW_MS):
        faults = Faults()
        node = self.kernel.add_node("a")
        clock = NodeClock(self.kernel, node)
        clock.wall_ms = now_ms
        database = SimDatabase(driver=faults.driver())
        store = SimStore(database, self.kernel, node, clock)
        async with trio.open_nursery() as nursery:
            store.start(nursery)
            yield StoreUnderTest(store=store, faults=faults)
            nursery.cancel_scope.cancel()
        database.close()


@pytest.fixture(params=["fifo", "1", "2", "3"])
def open_under_test(request, monkeypatch):
    """The simulator's store, and the contract's way to run a case replaced by a simulated run."""
    runs = Runs(Tape.fifo() if request.param == "fifo" else Tape.seeded(request.param))

    class TrioUnderKernel:
        run = staticmethod(runs.run_main)

        def __getattr__(self, name):
            return getattr(trio, name)

    for module in (test_store_contract, test_store_contract_commit):
        monkeypatch.setattr(module, "run", runs.run)
        if hasattr(module, "trio"):
            monkeypatch.setattr(module, "trio", TrioUnderKernel())
    return runs.open_store
