"""The database that all nodes of a simulated run share: SQLite in memory, over one connection.

`sim.disk.database` has the one whose file is on the simulated disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import apsw

from engine.ports import Reader
from engine.records import EventRow
from engine.store.batch import Item, run_batch
from engine.store.sqlite import begin_immediate, create_memory, restore_memory
from engine.store.transaction import SqliteReader, SqliteTransaction
from sim.disk.driver import Refusal, RefusingConnection
from sim.history import Commit, History

T = TypeVar("T")

_ROWS_MAX = 1_000_000


class SimDatabase:
    """The database, and what was committed to it.

    It is copied from `template`, or made empty. `driver` is a connection class that injects faults.
    """

    def __init__(
        self, template: apsw.Connection | None = None, *, driver: type[apsw.Connection] = apsw.Connection
    ) -> None:
        self.connection = self._connect(template, driver)
        self.commit_ms = 0  #: how long a commit takes; others wait for it
        self.busy_until_ns = 0  #: when the last one that takes time will be over
        self.history = History(self.reader().claims("", _ROWS_MAX))
        self._bells: list[Callable[[], None]] = []

    def _connect(self, template: apsw.Connection | None, driver: type[apsw.Connection]) -> apsw.Connection:
        return create_memory(driver) if template is None else restore_memory(template, driver)

    def reader(self) -> SqliteReader:
        """What is committed now; for the simulator's own looks, which no fault strikes."""
        return SqliteReader(self.connection)

    def read(self, work: Callable[[Reader], T]) -> T:
        """A node's read. Raises what `work` raises, or a `StoreError`."""
        reader = SqliteReader(self.connection)
        try:
            return work(reader)
        finally:
            reader.end()

    def close(self) -> None:
        """Forget everything."""
        self.connection.close()

    def run_batch(self, items: Sequence[Item], *, now_ms: Callable[[], int], writer_id: str) -> None:
        """Commit works together; each item then holds its outcome."""
        run_batch(
            self.connection,
            items,
            now_ms=now_ms,
            writer_id=writer_id,
            lock=self._lock,
            reopen=self._reopen,
        )

    @contextlib.contextmanager
    def refusing(self, refusal: Refusal) -> Iterator[None]:
        """Inside, a statement fails; the connection must be one that can refuse."""
        connection = self.connection
        assert isinstance(connection, RefusingConnection), "the scenario has no such fault"
        connection.refusal = refusal
        try:
            yield
        finally:
            connection.refusal = None

    def note(self, item: Item, commit: Commit) -> None:
        """Keep what became of one item of the batch that ran last, if it is committed."""
        if item.committed:
            self.history.add(commit)

    def try_out(self, items: Sequence[Item], *, now_ms: Callable[[], int]) -> list[SqliteTransaction]:
        """Run works one after another and take all of it back; the transactions of those that succeeded."""
        done = []
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            for item in items:
                tx = SqliteTransaction(self.connection, now_ms=now_ms())
                self.connection.execute("SAVEPOINT trial")
                try:
                    item.work(tx)
                    done.append(tx)
                except Exception:
                    self.connection.execute("ROLLBACK TO trial")
                self.connection.execute("RELEASE trial")
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        return done

    def poison(self, session_id: str, *, created: int) -> int:
        """Append an event that nobody can decode, past every engine; its seq. Everybody's bell rings."""
        self.connection.execute("BEGIN IMMEDIATE")
        tx = SqliteTransaction(self.connection, now_ms=created)
        seq = tx.latest_seq(session_id) + 1
        tx.append_event(
            EventRow(
                event_id=f"evt_poison_{session_id}_{seq}",
                session_id=session_id,
                seq=seq,
                type="poison",
                version=1,
                created=created,
                execution_id=None,
                data=b"{}",
            )
        )
        self.connection.execute("COMMIT")
        self.ring(but=None)
        return seq

    def on_commit(self, bell: Callable[[], None]) -> None:
        """Call `bell` at every commit; it tells its own commits from others'."""
        self._bells.append(bell)

    def ring(self, *, but: Callable[[], None] | None) -> None:
        """Something was committed: call all bells but that one."""
        for bell in self._bells:
            if bell != but:
                bell()

    def _lock(self, connection: apsw.Connection) -> None:
        begin_immediate(connection, sleep=_no_sleep, timeout_ms=1)

    def _reopen(self) -> apsw.Connection:
        # A database in memory ends with its connection, so all that a fresh one would lack is taken back.
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        return self.connection


def _no_sleep(seconds: float) -> None:
    """Nobody else holds the lock of a database with one connection."""
