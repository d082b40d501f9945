"""The one thread that writes. It owns the write connection, and reports to Trio in one hop per batch."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import apsw
import attrs

from engine.errors import CommitOutcomeUnknown, ConstraintBroken, StoreClosed, StoreError
from engine.store.batch import run_batch
from engine.store.mapping import map_error, own_copy
from engine.store.queries import QUERIES
from engine.store.sqlite import backoff_ms, begin_immediate, busy_error
from engine.store.tickets import Ticket, WorkQueue

logger = logging.getLogger("fencepost.store")

Sleep = Callable[[float], None]


@attrs.define(kw_only=True, eq=False)
class Writer:
    """Takes what is queued, commits it together, and hands the outcomes over.

    `settle(tickets)`, `changed()` and `stopped()` are called on this thread; the store makes a hop of each.
    """

    connection: apsw.Connection
    connect: Callable[[], apsw.Connection]
    queue: WorkQueue
    now_ms: Callable[[], int]
    sleep: Sleep
    writer_id: str
    write_timeout_ms: int
    poll_ms: int
    batch_works_max: int
    settle: Callable[[Sequence[Ticket]], None]
    changed: Callable[[], None]
    stopped: Callable[[], None]
    close_readers: Callable[[], None]

    error: str | None = None
    """The latest failure of the database, None once a write succeeded after it."""

    _data_version: int | None = None
    _in_flight: list[Ticket] = attrs.field(factory=list)

    def run(self) -> None:
        """The body of the thread: until the queue is closed, whatever happens."""
        try:
            self._data_version = self._read_data_version()
            while self.queue.closed is None:
                self.queue.wait(self.poll_ms / 1000)
                self._notice_changes()
                self._write()
        except BaseException as exc:  # nobody must wait for a thread that is gone
            self._die(exc)
        finally:
            try:
                self._close()
            finally:
                self.stopped()

    # --- one batch

    def _write(self) -> None:
        if not self._get_lock():
            return
        self._in_flight = self.queue.take(self.batch_works_max)
        if not self._in_flight:  # all were withdrawn meanwhile
            self.connection.execute("ROLLBACK")
            return
        result = run_batch(
            self.connection,
            self._in_flight,
            now_ms=self.now_ms,
            writer_id=self.writer_id,
            lock=self._lock_again,
            reopen=self._reopen,
        )
        self.connection = result.connection
        self._hand_over(self._in_flight)

    def _get_lock(self) -> bool:
        """Wait for the write lock while anybody waits for it; works are taken only afterwards.

        So a caller may still withdraw while another process holds the lock, and each one's time-out counts
        from its own arrival.
        """
        for pause_ms in backoff_ms():
            if not len(self.queue):
                return False
            try:
                self.connection.execute("BEGIN IMMEDIATE")
            except apsw.BusyError:
                self._expire()
                self.sleep(pause_ms / 1000)
                self.queue.age(pause_ms)
            except apsw.ConnectionClosedError:
                self._reopen_or_refuse()
            except apsw.Error as exc:
                self._refuse(map_error(exc))
            else:
                return True
        raise AssertionError("the waits never end")

    def _lock_again(self, connection: apsw.Connection) -> None:
        begin_immediate(connection, sleep=self.sleep, timeout_ms=self.write_timeout_ms)

    def _expire(self) -> None:
        late = self.queue.expire(self.write_timeout_ms)
        for ticket in late:
            ticket.fail(busy_error(ticket.waited_ms))
        if late:
            self._hand_over(late)

    def _refuse(self, error: StoreError) -> None:
        """Fail all that wait: the database can't even begin."""
        tickets = self.queue.take(len(self.queue))
        for ticket in tickets:
            ticket.fail(own_copy(error))
        self._hand_over(tickets)

    def _hand_over(self, tickets: Sequence[Ticket]) -> None:
        failures = [ticket.error for ticket in tickets if _is_failure(ticket.error)]
        if any(ticket.committed for ticket in tickets):
            self.error = None
        elif failures:
            self.error = f"{type(failures[-1]).__name__}: {failures[-1]}"
            logger.error("a write failed: %s", self.error)
        self._in_flight = []
        self.settle(tickets)

    # --- the connection

    def _reopen(self) -> apsw.Connection:
        self.connection.close(True)
        self.connection = self.connect()
        self._data_version = None
        return self.connection

    def _reopen_or_refuse(self) -> None:
        try:
            self._reopen()
        except StoreError as exc:
            self._refuse(exc)

    def _notice_changes(self) -> None:
        """Ring if another connection has committed since the last look; after a reopening nobody knows."""
        version = self._read_data_version()
        if version is not None and version != self._data_version:
            self._data_version = version
            self.changed()

    def _read_data_version(self) -> int | None:
        try:
            rows: list[tuple[Any, ...]] = self.connection.execute(QUERIES["data_version"]).fetchall()
        except apsw.Error as exc:
            mapped = map_error(exc)
            self.error = f"{type(mapped).__name__}: {mapped}"
            return None
        return int(rows[0][0])

    # --- the end

    def _die(self, exc: BaseException) -> None:
        logger.error("the writer died of %s: %s", type(exc).__name__, exc)
        self.error = f"the writer died of {type(exc).__name__}: {exc}"
        reason = StoreClosed(self.error)
        reason.__cause__ = exc
        refused = self.queue.close(reason)
        for ticket in refused:
            ticket.fail(own_copy(reason))
        for ticket in self._in_flight:
            if not ticket.committed and ticket.error is None:
                ticket.fail(_died_within(exc))
        self.settle([*self._in_flight, *refused])

    def _close(self) -> None:
        self.close_readers()
        with contextlib.suppress(apsw.Error):
            self.connection.execute(QUERIES["delete_writer_mark"], (self.writer_id,))
        self.connection.close(True)


def _is_failure(error: BaseException | None) -> bool:
    return isinstance(error, StoreError) and not isinstance(error, ConstraintBroken)


def _died_within(exc: BaseException) -> CommitOutcomeUnknown:
    error = CommitOutcomeUnknown(f"the writer died of {type(exc).__name__} with this write in its hands")
    error.__cause__ = exc
    return error
