"""A threaded store for a test, and the means to hold its writer."""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
import trio.testing

from engine.ports import Transaction
from engine.store import ThreadedStore, open_connection, open_store
from tests.contracts.store_cases import NOW_MS, Faults, append


@asynccontextmanager
async def opened(path: Path, faults: Faults | None = None, **options: Any) -> AsyncIterator[ThreadedStore]:
    """A store with a back-off that takes next to no time, and a test that can't hang."""
    settings: dict[str, Any] = {
        "clock_now_ms": lambda: NOW_MS,
        "sleep": threading.Event().wait,
        "write_timeout_ms": 10_000,
    }
    if faults is not None:
        settings["connect"] = functools.partial(open_connection, driver=faults.driver())
    with trio.fail_after(30):
        async with open_store(path, **{**settings, **options}) as store:
            yield store


class Hold:
    """A work that stays in the writer's hands until it is let go."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._go = threading.Event()
        self.entered = trio.Event()

    def work(self, tx: Transaction) -> int:
        self._token.run_sync_soon(self.entered.set)
        assert self._go.wait(20), "the test forgot this work"
        return append("ses_held")(tx)

    def let_go(self) -> None:
        self._go.set()


async def queued(store: ThreadedStore, count: int) -> None:
    while store.health().queued < count:
        await trio.lowlevel.checkpoint()
