"""The store of a node: one writer thread, a few readers, and callers that wait in Trio.

A write that was taken is never abandoned: whatever is cancelled or interrupted meanwhile, its caller first
learns the outcome, and the cancellation arrives at the caller's next checkpoint.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

import apsw
import attrs
import trio

from engine.errors import StoreClosed
from engine.ports import Reader, StoreHealth, StoreObserver, Transaction
from engine.store.batch import settle_hop, tell_observer
from engine.store.pool import ReadPool
from engine.store.sqlite import FilePath, Sleep, open_connection
from engine.store.tickets import Ticket, WorkQueue, refusal
from engine.store.writer import Writer

T = TypeVar("T")

READERS_MAX = 4
"""How many reads may run at once, each on a thread and a connection of its own."""

Connect = Callable[..., apsw.Connection]


def pause(seconds: float) -> None:
    """Block this thread: the real back-off of a writer that waits for a lock."""
    threading.Event().wait(seconds)


@attrs.frozen(kw_only=True)
class StoreOptions:
    """How a store is opened; times in milliseconds, `clock_now_ms` is the node's wall clock."""

    path: FilePath
    clock_now_ms: Callable[[], int]
    write_timeout_ms: int = 5_000
    poll_ms: int = 50
    batch_works_max: int = 256
    sleep: Sleep = pause
    create: bool = True
    writer_id: str | None = None
    connect: Connect = open_connection


class ThreadedStore:
    """A `Store` over one SQLite file, which several processes may open. Made by `open_store`."""

    def __init__(self, options: StoreOptions, connection: apsw.Connection) -> None:
        self._options = options
        self._token = trio.lowlevel.current_trio_token()
        self._queue = WorkQueue()
        self._observers: list[StoreObserver] = []
        self._limiter = trio.CapacityLimiter(READERS_MAX)
        self._pool = ReadPool(lambda: _connect(options, create=False, query_only=True))
        self._stopped = False
        self._closers: list[trio.lowlevel.Task] = []
        self._writer = Writer(
            connection=connection,
            connect=lambda: _connect(options, create=False),
            queue=self._queue,
            now_ms=options.clock_now_ms,
            sleep=options.sleep,
            writer_id=options.writer_id or _drawn_id(connection),
            write_timeout_ms=options.write_timeout_ms,
            poll_ms=options.poll_ms,
            batch_works_max=options.batch_works_max,
            settle=lambda tickets: self._hop(self._settle, tickets),
            changed=lambda: self._hop(self._changed_elsewhere),
            stopped=lambda: self._hop(self._note_stopped),
            close_readers=self._pool.close,
        )
        self._thread = threading.Thread(target=self._writer.run, name="fencepost-writer", daemon=True)
        self._thread.start()

    # --- the port

    @trio.lowlevel.enable_ki_protection
    async def write(
        self,
        work: Callable[[Transaction], T],
        after_commit: Callable[[T], None] | None = None,
        *,
        label: str = "",
    ) -> T:
        """See `engine.ports.Store.write`. Raises `StoreClosed` if the store is closed or its writer died."""
        await trio.lowlevel.checkpoint_if_cancelled()
        task = trio.lowlevel.current_task()
        ticket = Ticket(work=work, after_commit=after_commit, label=label, task=task)
        self._queue.put(ticket)
        try:
            await trio.lowlevel.wait_task_rescheduled(functools.partial(self._abort, ticket))
            value: T = ticket.unwrap()
            return value
        finally:
            del ticket  # it holds the error whose traceback holds this frame

    async def read(self, work: Callable[[Reader], T]) -> T:
        """See `engine.ports.Store.read`. A read that has begun is waited for, whatever is cancelled."""
        return await trio.to_thread.run_sync(self._pool.run, work, limiter=self._limiter)

    def observe(self, observer: StoreObserver) -> None:
        """Tell `observer` of every commit from now on."""
        self._observers.append(observer)

    def health(self) -> StoreHealth:
        """How the store is, without asking the database."""
        closed = self._queue.closed
        error = self._writer.error if closed is None else str(closed)
        return StoreHealth(writable=error is None, error=error, queued=len(self._queue))

    # --- the end

    @trio.lowlevel.enable_ki_protection
    async def aclose(self) -> None:
        """Finish what was taken, refuse what wasn't, and leave no thread or connection behind."""
        refused = self._queue.close(StoreClosed("the store is closed"))
        for ticket in refused:
            ticket.fail(refusal(StoreClosed("the store was closed before this write was taken")))
            trio.lowlevel.reschedule(ticket.task)
        if not self._stopped:
            self._closers.append(trio.lowlevel.current_task())
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        self._thread.join()

    # --- hops to the Trio thread

    def _abort(self, ticket: Ticket, _: Any) -> trio.lowlevel.Abort:
        withdrawn = self._queue.withdraw(ticket)
        return trio.lowlevel.Abort.SUCCEEDED if withdrawn else trio.lowlevel.Abort.FAILED

    def _hop(self, call: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(trio.RunFinishedError):  # then nobody is left to be told
            self._token.run_sync_soon(call, *args)

    def _settle(self, tickets: Sequence[Ticket]) -> None:
        try:
            settle_hop(tickets, self._observers)
        finally:
            for ticket in tickets:
                trio.lowlevel.reschedule(ticket.task)

    def _changed_elsewhere(self) -> None:
        for observer in self._observers:
            tell_observer(observer.changed_elsewhere)

    def _note_stopped(self) -> None:
        self._stopped = True
        for task in self._closers:
            trio.lowlevel.reschedule(task)
        self._closers.clear()


def _connect(options: StoreOptions, *, create: bool, query_only: bool = False) -> apsw.Connection:
    return options.connect(
        options.path,
        create=create,
        sleep=options.sleep,
        timeout_ms=options.write_timeout_ms,
        query_only=query_only,
    )


def _drawn_id(connection: apsw.Connection) -> str:
    return str(connection.execute("SELECT 'wrt_' || lower(hex(randomblob(16)))").fetchall()[0][0])


class _Opening(AbstractAsyncContextManager[ThreadedStore]):
    """A class rather than a generator, since only so can a KeyboardInterrupt be kept out of both ends."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> ThreadedStore:
        options = self._options
        connect = functools.partial(_connect, options, create=options.create)
        connection = await trio.to_thread.run_sync(connect)
        self._store = ThreadedStore(options, connection)
        return self._store

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._store.aclose()


def open_store(
    path: FilePath,
    *,
    clock_now_ms: Callable[[], int],
    write_timeout_ms: int = 5_000,
    poll_ms: int = 50,
    batch_works_max: int = 256,
    sleep: Sleep = pause,
    create: bool = True,
    writer_id: str | None = None,
    connect: Connect = open_connection,
) -> AbstractAsyncContextManager[ThreadedStore]:
    """`async with open_store(path, clock_now_ms=…) as store`: the store over the file at `path`.

    `write_timeout_ms` bounds the wait for the write lock, `poll_ms` is how often commits of other processes
    are looked for, `batch_works_max` how many works share a commit. `sleep(seconds)` is the back-off, on the
    writer's thread. `writer_id` must be fresh; by default it is drawn. Raises `StoreFileError` with nothing
    created or changed, or another `StoreError`.
    """
    return _Opening(
        StoreOptions(
            path=path,
            clock_now_ms=clock_now_ms,
            write_timeout_ms=write_timeout_ms,
            poll_ms=poll_ms,
            batch_works_max=batch_works_max,
            sleep=sleep,
            create=create,
            writer_id=writer_id,
            connect=connect,
        )
    )
