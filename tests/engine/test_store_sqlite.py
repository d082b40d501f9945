"""Opening a database: what is refused and left alone, what is made, and how it is hardened."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from engine.errors import StoreBusy, StoreError, StoreFileError
from engine.store import SqliteTransaction, create_memory, open_readonly, restore_memory
from engine.store import sqlite as sqlite_module
from engine.store.sqlite import APPLICATION_ID, check_file, check_sqlite_version, migrate
from tests.contracts.store_cases import seqs
from tests.engine.store_files import append_events, folder_state, open_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a new database may go; its name needs quoting."""
    return tmp_path / "a b%20?ü#.db"


# --- refusals ----------------------------------------------------------------------------------------


def _folder(path: Path) -> None:
    path.mkdir()


def _text(path: Path) -> None:
    path.write_text("not a database, and long enough to look like one\n" * 100)


def _short(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0")


def _foreign(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
    connection.close()


def _foreign_wal(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL; CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
    connection.close()


def _foreign_same_tables(path: Path) -> None:
    connection = apsw.Connection(str(path))
    migrate(connection)
    connection.execute("PRAGMA application_id = 77")
    connection.close()


def _newer(path: Path) -> None:
    open_file(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def _other_tables(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE event (x); PRAGMA user_version = 1")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.close()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _nothing(path: Path) -> None:
    pass


def _empty(path: Path) -> None:
    path.touch()


REFUSED = [
    (_folder, True, "is a folder"),
    (_text, True, "is not a database"),
    (_short, True, "is not a database"),
    (_foreign, True, "not one of Fencepost"),
    (_foreign_wal, True, "not one of Fencepost"),
    (_foreign_same_tables, True, "not one of Fencepost"),
    (_newer, True, "schema version 99"),
    (_other_tables, True, "missing or different"),
    (_fifo, True, "not a regular file"),
    (_nothing, False, "does not exist"),
    (_empty, False, "is empty"),
]


@pytest.mark.parametrize(("make", "create", "message"), REFUSED)
@pytest.mark.parametrize("opener", ["node", "command"])
def test_what_is_not_ours_is_left_alone(
    path: Path, make: Callable[[Path], None], create: bool, message: str, opener: str
) -> None:
    """It is refused in one clear line, and neither it, nor what is beside it, nor a time stamp changes."""
    make(path)
    before = folder_state(path.parent)
    doors = {"node": lambda: open_file(path, create=create), "command": lambda: open_readonly(path)}
    with pytest.raises(StoreFileError, match=message) as caught:
        doors[opener]()
    assert "\n" not in str(caught.value)
    after = folder_state(path.parent)
    if make is _other_tables:  # our name is on it, so it takes an ordinary look, which leaves no trace in it
        del before[""], after[""]
    assert after == before


def test_a_newer_schema_in_the_wal(path: Path) -> None:
    """A version that only the WAL knows yet is seen once the file is open, and refused just so."""
    newer = open_file(path)
    newer.execute("PRAGMA user_version = 99")
    for door in (lambda: open_file(path), lambda: open_readonly(path)):
        with pytest.raises(StoreFileError, match="schema version 99"):
            door()
    assert newer.execute("PRAGMA user_version").fetchall() == [(99,)]
    newer.close()


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    """A database in a missing folder is refused, and the folder isn't made."""
    with pytest.raises(StoreFileError, match="its folder does not exist"):
        open_file(tmp_path / "no" / "store.db")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("version", "fine"), [("3.51.2", False), ("3.40.1", False), ("3.51.3", True), ("4.0", True)]
)
def test_an_sqlite_that_loses_commits_is_refused(version: str, fine: bool) -> None:
    """Versions before 3.51.3 have the WAL-reset fault; the one in use has not."""
    check_sqlite_version()
    if fine:
        check_sqlite_version(version)
    else:
        with pytest.raises(StoreError, match=f"SQLite {version} can lose commits"):
            check_sqlite_version(version)


def test_old_sqlite_refuses_every_door(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes, commands and in-memory databases ask for the version before anything else."""
    monkeypatch.setattr(sqlite_module, "SQLITE_VERSION_MIN", (99, 0, 0))
    for door in (lambda: open_file(path), lambda: open_readonly(path), create_memory):
        with pytest.raises(StoreError, match=r"needs|install apsw"):
            door()
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_looking_drops_no_lock(path: Path, mode: str) -> None:
    """While this process holds the write lock, checking or reading the file here frees it for nobody."""
    mine = open_file(path)
    mine.execute(f"PRAGMA journal_mode = {mode}").fetchall()
    mine.execute("BEGIN EXCLUSIVE")
    for _ in range(3):
        check_file(path, create=True)
    if mode == "WAL":
        with open_readonly(path) as reader:
            assert reader.read(seqs()) == []
    script = "import apsw, sys; apsw.Connection(sys.argv[1]).execute('BEGIN IMMEDIATE')"
    other = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, check=False)
    assert b"BusyError" in other.stderr
    mine.close()


def test_a_file_that_still_grows_can_be_told(path: Path, tmp_path: Path) -> None:
    """The first page is enough: another process may still be writing those that it counts."""
    open_file(path).close()
    partial = tmp_path / "partial.db"
    partial.write_bytes(path.read_bytes()[:4096])
    check_file(partial, create=True)


# --- making ------------------------------------------------------------------------------------------


def test_a_new_file_is_private_and_marked(path: Path) -> None:
    """Mode 0600, also of the files beside it; application id and version in the header; nothing left over."""
    connection = open_file(path)
    append_events(connection, 0)
    modes = {file.name.removeprefix(path.name): file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == {"": 0o600, "-wal": 0o600, "-shm": 0o600}
    assert connection.execute("PRAGMA application_id").fetchall() == [(APPLICATION_ID,)]
    assert connection.execute("PRAGMA user_version").fetchall() == [(1,)]
    connection.close()
    assert os.listdir(path.parent) == [path.name]


def test_a_file_without_mknod_is_private_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system refuses `mknod`, the file is made in another way, and as private."""

    def refuse(*args: Any) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "mknod", refuse)
    open_file(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_existing_file_is_opened_as_it_is(path: Path) -> None:
    """What was committed is there, and neither the mode nor a single byte changes by opening and closing."""
    first = open_file(path)
    append_events(first, 0, 1)
    first.close()
    path.chmod(0o640)
    content = path.read_bytes()
    second = open_file(path, create=False)
    assert [row.seq for row in SqliteTransaction(second, now_ms=0).events("ses_a", -1, 9)] == [0, 1]
    second.close()
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o640


def test_eight_processes_create_one_file(path: Path) -> None:
    """All of them open the new database at once, and each one's event is there at the end."""
    script = (
        "import sys\n"
        "from engine.store import SqliteTransaction\n"
        "from engine.store.threaded import pause\n"
        "from engine.store.sqlite import begin_immediate, open_connection\n"
        "from tests.contracts.store_cases import event_row\n"
        "sys.stdin.readline()\n"
        "c = open_connection(sys.argv[1], sleep=pause, timeout_ms=20_000)\n"
        "begin_immediate(c, sleep=pause, timeout_ms=20_000)\n"
        "tx = SqliteTransaction(c, now_ms=0)\n"
        "tx.append_event(event_row(seq=tx.latest_seq('ses_a') + 1))\n"
        "c.execute('COMMIT')\n"
        "c.close()\n"
    )
    pipe = subprocess.PIPE
    others = [
        subprocess.Popen([sys.executable, "-c", script, str(path)], stdin=pipe, stdout=pipe, stderr=pipe)
        for _ in range(8)
    ]
    for other in others:
        assert other.stdin is not None
        other.stdin.write(b"go\n")
        other.stdin.flush()
    results = [other.communicate(timeout=60) for other in others]
    assert [err for _, err in results if err] == []
    with open_readonly(path) as store:
        assert store.read(seqs()) == list(range(8))
    assert path.stat().st_mode & 0o777 == 0o600


def test_threads_create_one_file(path: Path) -> None:
    """Several connections of one process may create it at once, too."""
    made: list[apsw.Connection] = []
    threads = [
        threading.Thread(
            target=lambda: made.append(open_file(path, sleep=threading.Event().wait, timeout_ms=9_000))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    for connection in made:
        connection.close()


def test_a_file_that_stays_locked(path: Path) -> None:
    """Opening waits for the lock within its time, and then says so; nothing stays open."""
    path.touch()
    other = apsw.Connection(str(path))
    other.execute("BEGIN EXCLUSIVE")
    slept: list[float] = []
    with pytest.raises(StoreBusy, match="is it stopped"):
        open_file(path, sleep=slept.append, timeout_ms=50)
    assert 0.05 <= sum(slept) < 0.1
    other.close()
    open_file(path).close()


def test_a_migration_is_all_or_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that fails in the middle leaves the former version, from which the next try goes on."""
    open_file(path).close()
    migrations = [*sqlite_module.MIGRATIONS, "CREATE TABLE extra (x) STRICT; SELECT broken"]
    monkeypatch.setattr(sqlite_module, "MIGRATIONS", tuple(migrations))
    monkeypatch.setattr(sqlite_module, "SCHEMA_VERSION", 2)
    with pytest.raises(StoreError):
        open_file(path)
    with pytest.raises(StoreFileError, match="older schema version 1"):
        open_readonly(path)
    migrations[1] = "CREATE TABLE extra (x INTEGER) STRICT"
    monkeypatch.setattr(sqlite_module, "MIGRATIONS", tuple(migrations))
    connection = open_file(path)
    assert connection.execute("PRAGMA user_version").fetchall() == [(2,)]
    assert connection.execute("SELECT * FROM extra").fetchall() == []
    connection.close()


# --- hardening ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pragma", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("foreign_keys", 1),
        ("trusted_schema", 0),
        ("cell_size_check", 1),
        ("busy_timeout", 0),
        ("fullfsync", 1),
        ("checkpoint_fullfsync", 1),
        ("journal_size_limit", 64 * 1024 * 1024),
        ("query_only", 0),
    ],
)
def test_a_connection_is_hardened(path: Path, pragma: str, value: Any) -> None:
    """Each opening sets this again, since it belongs to the connection and not to the file."""
    open_file(path).close()
    connection = open_file(path)
    assert connection.execute(f"PRAGMA {pragma}").fetchall() == [(value,)]
    connection.close()


def test_a_connection_distrusts_the_file(path: Path) -> None:
    """No writing to the schema table, no text in double quotes."""
    connection = open_file(path)
    assert connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1) == 1
    with pytest.raises(apsw.SQLError):
        connection.execute('SELECT "nothing"')
    connection.close()


def test_a_query_only_connection_cannot_write(path: Path) -> None:
    """A read connection refuses to write."""
    open_file(path).close()
    connection = open_file(path, query_only=True)
    with pytest.raises(apsw.ReadOnlyError):
        append_events(connection, 0)
    connection.close()


# --- in memory ---------------------------------------------------------------------------------------


def test_a_restored_copy_is_independent() -> None:
    """It starts with what the template holds, and then neither sees the other."""
    template = create_memory()
    append_events(template, 0)
    copy = restore_memory(template)
    append_events(copy, 1)
    assert [len(c.execute("SELECT * FROM event").fetchall()) for c in (template, copy)] == [1, 2]
    assert copy.execute("PRAGMA foreign_keys").fetchall() == [(1,)]
    with pytest.raises(apsw.ConstraintError):
        copy.execute("INSERT INTO execution_claim VALUES ('x','e','o',1,'ready',NULL,-1,0,0,0,NULL)")
