"""A store in memory without any thread: for tests under a virtual clock.

Works and batches are those of the real store. What differs is who waits: a write commits in its caller's own
task, right after a checkpoint. Nothing ever happens behind Trio's back, so a clock that jumps when all tasks
wait never jumps over work that is under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import apsw
import trio

from engine.errors import ConstraintBroken, StoreClosed, StoreError
from engine.ports import Reader, StoreHealth, StoreObserver, Transaction
from engine.store.batch import Item, run_batch, settle_hop, tell_observer
from engine.store.sqlite import begin_immediate, create_memory
from engine.store.transaction import SqliteReader

T = TypeVar("T")


class MemoryDatabase:
    """A database in memory, and the stores open on it. `driver` is a subclass that injects faults."""

    def __init__(self, driver: type[apsw.Connection] = apsw.Connection) -> None:
        self.connection = create_memory(driver)
        self._stores: dict[int, MemoryStore] = {}
        self._opened = 0

    def open_store(self, clock_now_ms: Callable[[], int]) -> MemoryStore:
        """One node's store; `clock_now_ms` is that node's wall clock, in milliseconds."""
        self._opened += 1
        store = self._stores[self._opened] = MemoryStore(self, self._opened, clock_now_ms)
        return store

    def read(self, work: Callable[[Reader], T]) -> T:
        """Run `work` on what is committed now. Raises a `StoreError`."""
        reader = SqliteReader(self.connection)
        try:
            return work(reader)
        finally:
            reader.end()

    def forget(self, number: int) -> None:
        """A store was closed."""
        self._stores.pop(number, None)

    def tell_others(self, writer: MemoryStore) -> None:
        """Whoever else has the database open learns that something was committed."""
        for store in list(self._stores.values()):
            if store is not writer:
                store.changed_elsewhere()

    def reopen(self) -> apsw.Connection:
        """A database in memory ends with its connection, so what a fresh one would lack is taken back."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        return self.connection


class MemoryStore:
    """A `Store` over a `MemoryDatabase`; made by `MemoryDatabase.open_store`."""

    def __init__(self, database: MemoryDatabase, number: int, clock_now_ms: Callable[[], int]) -> None:
        self.database = database
        self._number = number
        self._now_ms = clock_now_ms
        self._observers: list[StoreObserver] = []
        self._closed = False
        self._error: str | None = None

    @trio.lowlevel.enable_ki_protection
    async def write(
        self,
        work: Callable[[Transaction], T],
        after_commit: Callable[[T], None] | None = None,
        *,
        label: str = "",
    ) -> T:
        """See `engine.ports.Store.write`. Raises `StoreClosed` if the store is closed."""
        await trio.lowlevel.checkpoint()  # from here on nothing waits, so nothing can be withdrawn
        self._check_open()
        item = Item(work=work, after_commit=after_commit, label=label)
        try:
            run_batch(
                self.database.connection,
                [item],
                now_ms=self._now_ms,
                writer_id=f"wrt_{self._number}",
                lock=lambda connection: begin_immediate(connection, sleep=_no_sleep, timeout_ms=1),
                reopen=self.database.reopen,
            )
            self._note_health(item)
            settle_hop([item], self._observers)
            if item.committed:
                self.database.tell_others(self)
            value: T = item.unwrap()
            return value
        finally:
            del item  # it holds the error whose traceback holds this frame

    async def read(self, work: Callable[[Reader], T]) -> T:
        """See `engine.ports.Store.read`. Raises `StoreClosed` if the store is closed."""
        await trio.lowlevel.checkpoint()
        self._check_open()
        return self.database.read(work)

    def observe(self, observer: StoreObserver) -> None:
        """Tell `observer` of every commit from now on."""
        self._observers.append(observer)

    def health(self) -> StoreHealth:
        """How the store is."""
        return StoreHealth(writable=not self._closed, error=self._error, queued=0)

    def close(self) -> None:
        """Refuse everything from now on; what is in the database stays."""
        self._closed = True
        self._error = "StoreClosed: the store is closed"
        self.database.forget(self._number)

    def changed_elsewhere(self) -> None:
        """Another store of the same database committed something."""
        for observer in self._observers:
            tell_observer(observer.changed_elsewhere)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")

    def _note_health(self, item: Item) -> None:
        if item.committed:
            self._error = None
        elif isinstance(item.error, StoreError) and not isinstance(item.error, ConstraintBroken):
            self._error = f"{type(item.error).__name__}: {item.error}"


def _no_sleep(seconds: float) -> None:
    """Nobody else holds the lock of a database in memory."""
