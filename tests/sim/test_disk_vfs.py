"""SQLite on the simulated disk: what it commits is durable, whenever power goes, and errors are its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import apsw
import pytest

from sim.disk.files import Operation, Side, SimDisk
from sim.disk.loss import drawn
from sim.disk.vfs import DiskVfs
from sim.scenario.disk import Unsynced
from sim.tape import Tape

ROWS = 12


class DiskForSqlite(SimDisk):
    """A disk and the VFS that leads to it."""

    def __init__(self) -> None:
        super().__init__()
        self.vfs = DiskVfs(self)


@pytest.fixture
def disk() -> Iterator[DiskForSqlite]:
    """A disk with an empty table on it."""
    disk = DiskForSqlite()
    connection = opened(disk)
    connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, filling BLOB)")
    connection.close()
    yield disk
    disk.vfs.unregister()


def opened(disk: DiskForSqlite, *, checkpoint: int = 8) -> apsw.Connection:
    """A connection as the engine sets it up, but for a log that is copied back often."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    connection = apsw.Connection("t.db", vfs=disk.vfs.name, flags=flags)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
    assert connection.execute("PRAGMA journal_mode = WAL").fetchall() == [("wal",)]
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint}").fetchall()
    return connection


def insert(connection: apsw.Connection, n: int) -> None:
    """One commit of two pages or so."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO t VALUES (?, zeroblob(3000))", (n,))
    connection.execute("COMMIT")


def rows(connection: apsw.Connection) -> list[int]:
    """What is in the table."""
    found: list[tuple[int]] = connection.execute("SELECT n FROM t ORDER BY n").fetchall()  # type: ignore[assignment]
    return [n for (n,) in found]


def commit_until_dark(disk: DiskForSqlite, at: int, side: Side, how: Unsynced, tape: Tape) -> int | None:
    """Insert row after row with power going at the `at`-th operation; how many were acknowledged, None if it
    never went."""
    count = 0

    def lose(operation: Operation, now: Side) -> None:
        nonlocal count
        count += now == side
        if now == side and count == at:
            disk.lose_power(drawn(tape, how))

    connection = opened(disk)
    disk.hook = lose
    acknowledged = 0
    try:
        with disk.exposing():
            for n in range(ROWS):
                insert(connection, n)
                acknowledged += 1
    except apsw.Error:
        assert not disk.powered
        return acknowledged
    finally:
        disk.hook = lambda operation, side: None
        connection.close(True)
    return None


@pytest.mark.parametrize("how", get_args(Unsynced))
@pytest.mark.parametrize("side", get_args(Side))
def test_power_may_go_at_every_operation(disk: DiskForSqlite, how: Unsynced, side: Side) -> None:
    """At each operation in turn, checkpoints included: what was acknowledged is there, what is there is a
    beginning of what was inserted, and the database is whole."""
    at = cut = 0
    while True:
        at += 1
        fresh = DiskForSqlite()
        fresh.files = {name: file.survivor([]) for name, file in disk.files.items()}
        acknowledged = commit_until_dark(fresh, at, side, how, Tape.seeded(at))
        if acknowledged is None:
            break
        fresh.power_on()
        connection = opened(fresh)
        found = rows(connection)
        assert found == list(range(len(found)))
        assert acknowledged <= len(found) <= acknowledged + 1
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
        fresh.vfs.unregister()
        cut += 1
    assert cut > 60, "power went at hardly any operation"


@pytest.mark.parametrize(
    ("operation", "code"), [("write", apsw.SQLITE_IOERR_WRITE), ("sync", apsw.SQLITE_IOERR_FSYNC)]
)
def test_an_error_reaches_the_caller_as_sqlites_own(
    disk: DiskForSqlite, operation: Operation, code: int
) -> None:
    """A commit that fails says with what, and the next one works."""
    connection = opened(disk)
    disk.failing[operation] = 1
    with disk.exposing():
        with pytest.raises(apsw.IOError) as caught:
            insert(connection, 1)
        assert caught.value.extendedresult == code  # type: ignore[attr-defined]
        insert(connection, 2)
    assert rows(connection) == [2]
    connection.close()


def test_a_full_disk_is_told_as_full(disk: DiskForSqlite) -> None:
    """SQLITE_FULL, and nothing of the commit is there."""
    connection = opened(disk)
    disk.full += 1
    with disk.exposing(), pytest.raises(apsw.FullError):
        insert(connection, 1)
    disk.free()
    assert rows(connection) == []
    connection.close()


def test_a_read_that_fails_is_told(disk: DiskForSqlite) -> None:
    """Once nothing is cached, a SELECT meets the disk."""
    connection = opened(disk)
    insert(connection, 1)
    connection.execute("PRAGMA shrink_memory")
    disk.failing["read"] = 1
    with disk.exposing(), pytest.raises(apsw.IOError):
        rows(connection)
    assert rows(connection) == [1]
    connection.close()


def test_a_file_that_is_not_there_is_not_made_by_reading(disk: DiskForSqlite) -> None:
    """Without the flag to create it, opening fails."""
    with pytest.raises(apsw.CantOpenError):
        apsw.Connection("u.db", vfs=disk.vfs.name, flags=apsw.SQLITE_OPEN_READWRITE)


def test_temporary_files_are_no_business_of_the_disk(disk: DiskForSqlite) -> None:
    """What a statement needs while it runs is never struck, and leaves no file."""
    connection = opened(disk)
    disk.full += 1
    with disk.exposing():
        connection.execute("PRAGMA cache_size = 2")
        connection.execute("PRAGMA temp_store = FILE")
        connection.execute(
            "CREATE TEMP TABLE u AS WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c"
            " WHERE n < 500) SELECT n, zeroblob(1000) AS filling FROM c"
        )
        assert connection.execute("SELECT count(*) FROM u").fetchall() == [(500,)]
    connection.close()
    assert list(disk.files) == ["t.db"]
