"""The database on the simulated disk: the engine's schema with the engine's pragmas, over one connection.

A write-ahead log without shared memory needs `locking_mode = exclusive`, so all nodes share that connection.
Which commits a loss of power took is read from the writers' marks, which each batch counts within its commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw

from engine.errors import CommitOutcomeUnknown, StoreCorrupt, StoreError
from engine.ports import Reader
from engine.records import EventRow
from engine.store.batch import Item
from engine.store.mapping import map_error, own_copy
from engine.store.queries import QUERIES
from engine.store.sqlite import STATEMENTS_CACHED, check_schema, harden, migrate, restore_memory
from engine.store.transaction import SqliteReader, SqliteTransaction
from sim.database import SimDatabase
from sim.disk.driver import RefusingConnection
from sim.disk.files import SimDisk, Survives
from sim.disk.vfs import DiskVfs
from sim.history import Commit, PowerLoss
from sim.scenario import Disk, Scenario

T = TypeVar("T")

FILE = "fencepost.db"
ENGINES_OWN = "full"
"""How durable the engine itself makes its connections: that isn't set again here, but put to the test."""

_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
_ROWS_MAX = 1_000_000


def database_of(scenario: Scenario) -> SimDatabase:
    """In memory or on the simulated disk; one that can refuse a statement only where some fault needs it."""
    refuses = any(fault.inside is not None for fault in scenario.faults)
    driver = RefusingConnection if refuses else apsw.Connection
    return SimDatabase(driver=driver) if scenario.disk is None else DiskDatabase(scenario.disk, driver=driver)


class DiskDatabase(SimDatabase):
    """The database, the disk it is on, and what was committed to it."""

    def __init__(self, spec: Disk, *, driver: type[apsw.Connection] = apsw.Connection) -> None:
        self.disk = SimDisk()
        self.damage: str | None = None  #: why it couldn't be opened again after a loss of power
        self._spec = spec
        self._driver = driver
        self._vfs = DiskVfs(self.disk)
        self._open = True  #: false while the connection is closed, since it couldn't be opened anew
        self._batch: Sequence[Item] = ()
        self._marks: dict[int, int] = {}  #: by the item's id: the mark of the commit that it was last part of
        self._mark = 0
        self._found: int | None = None  #: the mark that recovery found after a COMMIT that failed
        self._writer_id = ""
        self._made: dict[int, tuple[str, int]] = {}  #: by a commit's entry: its writer, and the mark of it
        self._loss: PowerLoss | None = None  #: one that struck the batch that ran last
        super().__init__(driver=driver)

    @property
    def in_flight(self) -> Sequence[Item]:
        """The works of the batch that runs now."""
        return self._batch

    @property
    def writer(self) -> str:
        """The node whose batch runs now; empty while none does."""
        return self._writer_id.rpartition(".")[0] if self._batch else ""

    def speed_up(self) -> None:
        """Commits take no time any more."""
        self.commit_ms = 0

    def close(self) -> None:
        """Forget everything."""
        _close(self.connection)
        self._vfs.unregister()
        self.disk.hook, self.disk.meet = (lambda operation, side: None), (lambda kind, operation: None)

    # --- what nodes do, and the simulator's own looks ------------------------------------------------

    def reader(self) -> SqliteReader:
        """What is committed now; the simulator's own look."""
        self._open_anew()
        return SqliteReader(self.connection)

    def read(self, work: Callable[[Reader], T]) -> T:
        """A node's read, which the disk's faults may strike."""
        try:
            with self.disk.exposing():
                self._open_anew()
                self._forget_pages()
                return super().read(work)
        finally:
            self._after()

    def run_batch(self, items: Sequence[Item], *, now_ms: Callable[[], int], writer_id: str) -> None:
        """Commit works together, while the disk's faults may strike."""
        self._batch, self._writer_id, self._loss, self._found = items, writer_id, None, None
        self._marks.clear()
        works = [item.work for item in items]
        for item in items:
            item.work = self._marked(item)
        try:
            with self.disk.exposing():
                self._open_anew()
                self._forget_pages()
                super().run_batch(items, now_ms=now_ms, writer_id=writer_id)
        except StoreError as exc:
            for item in items:
                item.fail(own_copy(exc))
        finally:
            self._batch = ()
            for item, work in zip(items, works, strict=True):
                item.work = work
            self._after()

    def note(self, item: Item, commit: Commit) -> None:
        """Keep what became of one item of the batch that ran last, as the database has it."""
        mark = self._marks.get(id(item))
        unknown = isinstance(item.error, CommitOutcomeUnknown)
        if mark is None or not (item.committed or unknown):
            return
        there = mark <= self._read_mark(self._writer_id) if unknown or self._loss else True
        if unknown and self._found is not None:
            # what the engine commits to make sure may have counted up to this very mark since
            there = there and mark <= self._found
        if there:
            self.history.add(commit)
            self._made[commit.entry] = (self._writer_id, mark)
        if self._loss is not None:
            (self._loss.survived if there else self._loss.lost).append(commit)

    def try_out(self, items: Sequence[Item], *, now_ms: Callable[[], int]) -> list[SqliteTransaction]:
        """Run works and take all of it back; no fault strikes."""
        self._open_anew()
        return super().try_out(items, now_ms=now_ms)

    def poison(self, session_id: str, *, created: int) -> int:
        """Append an event that nobody can decode; no fault strikes."""
        self._open_anew()
        return super().poison(session_id, created=created)

    # --- the connection ------------------------------------------------------------------------------

    def _connect(self, template: apsw.Connection | None, driver: type[apsw.Connection]) -> apsw.Connection:
        connection = driver(FILE, vfs=self._vfs.name, flags=_FLAGS, statementcachesize=STATEMENTS_CACHED)
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
            migrate(connection, FILE)
            harden(connection)
            connection.execute(f"PRAGMA wal_autocheckpoint = {self._spec.checkpoint_pages}").fetchall()
            if self._spec.synchronous != ENGINES_OWN:
                connection.execute(f"PRAGMA synchronous = {self._spec.synchronous}")
        except BaseException:
            _close(connection)
            raise
        return connection

    def _open_anew(self) -> None:
        """Open the connection if it is closed. Raises `StoreError`."""
        if self._open:
            return
        try:
            self.connection = self._connect(None, self._driver)
        except apsw.Error as exc:
            raise map_error(exc) from exc
        self._open = True

    def _reopen(self) -> apsw.Connection:
        _close(self.connection)
        self._open = False
        self._open_anew()
        exposed, self.disk.exposed = self.disk.exposed, False
        self._found = self._read_mark(self._writer_id)
        self.disk.exposed = exposed
        return self.connection

    def _forget_pages(self) -> None:
        """A read that is to fail must reach the disk: nothing is cached then."""
        if self.disk.failing.get("read"):
            self.connection.execute("PRAGMA shrink_memory")

    # --- marks ---------------------------------------------------------------------------------------

    def _lock(self, connection: apsw.Connection) -> None:
        super()._lock(connection)
        self.disk.exposed = False
        self._mark = self._read_mark(self._writer_id) + 1
        self.disk.exposed = True

    def _marked(self, item: Item) -> Callable[..., object]:
        work = item.work

        def marked(tx: SqliteTransaction) -> object:
            self._marks[id(item)] = self._mark
            return work(tx)

        return marked

    def _read_mark(self, writer_id: str) -> int:
        self._open_anew()
        # past the driver: a look of ours mustn't be the statement that its fault strikes
        cursor = apsw.Connection.execute(self.connection, QUERIES["writer_mark"], (writer_id,))
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return int(rows[0][0]) if rows else 0

    # --- power ---------------------------------------------------------------------------------------

    def lose_power(self, survives: Survives, loss: PowerLoss) -> None:
        """All that isn't durable is gone, or what `survives` of it. In the middle of an operation that one
        fails, and all others until the batch or the read is over; no node may run on then."""
        loss.honest = not self.disk.lied
        self.busy_until_ns = 0
        self._loss = loss
        self.history.losses.append(loss)
        exposed = self.disk.exposed
        self.disk.lose_power(survives)
        if not exposed:
            self._after()

    def _after(self) -> None:
        """Where power was lost: open what is left, and take from the history what is gone."""
        loss = self._loss
        if self.disk.powered or loss is None:
            return
        self._open_anew()
        last_seen = restore_memory(self.connection)
        _close(self.connection)
        self._open = False
        self.disk.power_on()
        try:
            self._open_anew()
            check_schema(self.connection, FILE)
            self._check_integrity()
        except (apsw.Error, StoreError) as exc:
            self.damage = f"{type(exc).__name__}: {exc}"
            loss.wrong.append(f"the database couldn't be used any more: {self.damage}")
            _close(self.connection)
            self.connection, self._open = last_seen, True  # for those who look at it when the run is over
            return
        last_seen.close()
        self._compare(loss)

    def _check_integrity(self) -> None:
        rows = self.connection.execute("PRAGMA integrity_check").fetchall()
        if rows != [("ok",)]:
            raise StoreCorrupt("; ".join(str(row[0]) for row in rows))

    def _compare(self, loss: PowerLoss) -> None:
        """Which commits are gone, by their writers' marks, and whether that is true of their events."""
        marks: dict[str, int] = {}
        for commit in self.history.commits:
            writer_id, mark = self._made[commit.entry]
            if writer_id not in marks:
                marks[writer_id] = self._read_mark(writer_id)
            if mark > marks[writer_id]:
                loss.lost.append(commit)
            elif loss.lost:
                gone, kept = _named(loss.lost[0]), _named(commit)
                loss.wrong.append(f"{gone} was gone, and {kept}, which came later, was there")
        self.history.forget(loss.lost)
        there = {row.event_id for row in self._rows()}
        for commit in loss.lost:
            for row in commit.events:
                if row.event_id in there:
                    loss.wrong.append(f"{_named(commit)} was gone, but its event {row.type} was there")

    def _rows(self) -> list[EventRow]:
        reader = SqliteReader(self.connection)
        sessions = reader.sessions("", _ROWS_MAX)
        return [row for each in sessions for row in reader.events(each.session_id, -1, _ROWS_MAX)]


def _named(commit: Commit) -> str:
    what = ", ".join(row.type for row in commit.events) or commit.label
    return f"{commit.node}'s commit of {what}"


def _close(connection: apsw.Connection) -> None:
    """Close, whatever the disk says to the checkpoint that comes with it."""
    with contextlib.suppress(apsw.Error):
        connection.close(True)
