"""The database that all nodes of a simulated run share: SQLite in memory, over one connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import apsw

from engine.records import EventRow
from engine.store.batch import Item, run_batch
from engine.store.sqlite import begin_immediate, create_memory, restore_memory
from engine.store.transaction import SqliteReader, SqliteTransaction
from sim.history import History

_ROWS_MAX = 1_000_000


class SimDatabase:
    """The database, and what was committed to it.

    It is copied from `template`, or made empty. `driver` is a connection class that injects faults.
    """

    def __init__(
        self, template: apsw.Connection | None = None, *, driver: type[apsw.Connection] = apsw.Connection
    ) -> None:
        self.connection = create_memory(driver) if template is None else restore_memory(template, driver)
        self.history = History(self.reader().claims("", _ROWS_MAX))
        self._bells: list[Callable[[], None]] = []

    def reader(self) -> SqliteReader:
        """What is committed now."""
        return SqliteReader(self.connection)

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
            lock=lambda connection: begin_immediate(connection, sleep=_no_sleep, timeout_ms=1),
            reopen=self._reopen,
        )

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

    def _reopen(self) -> apsw.Connection:
        # A database in memory ends with its connection, so all that a fresh one would lack is taken back.
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        return self.connection


def _no_sleep(seconds: float) -> None:
    """Nobody else holds the lock of a database in memory."""
