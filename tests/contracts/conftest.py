"""The stores that the contract is run over. A new one joins by a line in `IMPLEMENTATIONS`."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.store import open_connection, open_store
from engine.store.memory import MemoryDatabase
from tests.contracts.store_cases import NOW_MS, Faults, OpenStore, StoreUnderTest


@asynccontextmanager
async def open_threaded(*, now_ms: Callable[[], int] = lambda: NOW_MS) -> AsyncIterator[StoreUnderTest]:
    """The threaded store over a file, with a back-off that takes no time."""
    faults = Faults()
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(
            Path(folder) / "store.db",
            clock_now_ms=now_ms,
            write_timeout_ms=200,
            sleep=lambda seconds: None,
            connect=functools.partial(open_connection, driver=faults.driver()),
        ) as store:
            yield StoreUnderTest(store=store, faults=faults)


@asynccontextmanager
async def open_memory(*, now_ms: Callable[[], int] = lambda: NOW_MS) -> AsyncIterator[StoreUnderTest]:
    """The store in memory that tests of users' own run on."""
    faults = Faults()
    store = MemoryDatabase(driver=faults.driver()).open_store(now_ms)
    yield StoreUnderTest(store=store, faults=faults)
    store.close()


IMPLEMENTATIONS: dict[str, OpenStore] = {"threaded": open_threaded, "memory": open_memory}


@pytest.fixture(params=list(IMPLEMENTATIONS))
def open_under_test(request: pytest.FixtureRequest) -> OpenStore:
    """How to open the implementation that this test runs over."""
    return IMPLEMENTATIONS[request.param]
