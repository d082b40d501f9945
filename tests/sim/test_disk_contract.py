"""The contract of `engine.ports.Store`, over the simulator's store with its file on the simulated disk."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from sim.clock import NodeClock
from sim.disk.database import DiskDatabase
from sim.scenario import Disk
from sim.store import SimStore
from sim.tape import Tape
from tests.contracts import test_store_contract, test_store_contract_commit
from tests.contracts.store_cases import NOW_MS, Faults, StoreUnderTest
from tests.contracts.test_store_contract import *  # noqa: F403
from tests.contracts.test_store_contract_commit import *  # noqa: F403
from tests.sim.test_sim_store_contract import Runs


class RunsOnDisk(Runs):
    """Runs cases inside the simulator, each on a disk of its own."""

    @asynccontextmanager
    async def open_store(self, *, now_ms=lambda: NOW_MS):
        faults = Faults()
        node = self.kernel.add_node("a")
        clock = NodeClock(self.kernel, node)
        clock.wall_ms = now_ms
        database = DiskDatabase(Disk(), driver=faults.driver())
        store = SimStore(database, self.kernel, node, clock)
        try:
            async with trio.open_nursery() as nursery:
                store.start(nursery)
                yield StoreUnderTest(store=store, faults=faults)
                nursery.cancel_scope.cancel()
        finally:
            database.close()


@pytest.fixture(params=["fifo", "1", "2"])
def open_under_test(request, monkeypatch):
    """The store, and the contract's way to run a case replaced by a simulated run."""
    runs = RunsOnDisk(Tape.fifo() if request.param == "fifo" else Tape.seeded(request.param))

    class TrioUnderKernel:
        run = staticmethod(runs.run_main)

        def __getattr__(self, name):
            return getattr(trio, name)

    for module in (test_store_contract, test_store_contract_commit):
        monkeypatch.setattr(module, "run", runs.run)
        if hasattr(module, "trio"):
            monkeypatch.setattr(module, "trio", TrioUnderKernel())
    return runs.open_store
