"""Looking into a database from outside: for commands that read a file while its nodes may be at work."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import apsw

from engine.errors import StoreFileError
from engine.ports import Reader
from engine.store import sqlite
from engine.store.mapping import map_error
from engine.store.queries import QUERIES
from engine.store.transaction import SqliteReader

T = TypeVar("T")

BUSY_TIMEOUT_MS = 5_000


class ReadOnlyStore:
    """A database that is only looked at. Use it as a context manager; every call blocks its thread."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._data_version = self._read_data_version()

    def read(self, work: Callable[[Reader], T]) -> T:
        """Run `work` on a snapshot. It returns materialised values. Raises a `StoreError`."""
        try:
            self._connection.execute("BEGIN")
            reader = SqliteReader(self._connection)
            try:
                return work(reader)
            finally:
                reader.end()
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
        except apsw.Error as exc:
            raise map_error(exc) from exc

    def changed(self) -> bool:
        """True if somebody has committed since the last call, or since this was opened."""
        before, self._data_version = self._data_version, self._read_data_version()
        return before != self._data_version

    def damage(self) -> list[str]:
        """What SQLite's own check of the whole file finds wrong; empty if nothing."""
        try:
            rows = self._connection.execute("PRAGMA integrity_check").fetchall()
        except apsw.Error as exc:
            return [str(map_error(exc))]
        found = [str(row[0]) for row in rows]
        return [] if found == ["ok"] else found

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> ReadOnlyStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _read_data_version(self) -> int:
        try:
            rows: list[tuple[Any, ...]] = self._connection.execute(QUERIES["data_version"]).fetchall()
        except apsw.Error as exc:
            raise map_error(exc) from exc
        return int(rows[0][0])


def open_readonly(path: sqlite.FilePath) -> ReadOnlyStore:
    """Open an existing database for reading, also while others write.

    Raises `StoreFileError` if there is none, with nothing created. The files beside it (`-wal`, `-shm`) are
    there while it is open, and closing leaves the folder as it was found: what wasn't there is gone, and a
    WAL that a crashed process left is neither folded in nor removed.
    """
    sqlite.check_sqlite_version()
    sqlite.check_file(path, create=False)
    try:
        connection = _connect(path)
        try:
            sqlite.check_current(connection, path)
            sqlite.distrust_file(connection)
            sqlite.make_read_only(connection, timeout_ms=BUSY_TIMEOUT_MS)
            return ReadOnlyStore(connection)
        except BaseException:
            connection.close()
            raise
    except apsw.Error as exc:
        raise map_error(exc) from exc


def _connect(path: sqlite.FilePath) -> apsw.Connection:
    path = os.path.abspath(path)
    if not (os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK)):
        return _connect_unwritable(path)
    # A read-only open of a WAL file would leave the files beside it; the last one to close for writing
    # removes them, folding in the WAL unless told not to.
    wal_left = os.path.exists(f"{path}-wal")
    connection = sqlite.connect(path, apsw.SQLITE_OPEN_READWRITE)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(wal_left))
    return connection


def _connect_unwritable(path: str) -> apsw.Connection:
    """A file this user can't write: its WAL is read if a node has it open, or else there must be none."""
    if os.path.exists(f"{path}-shm"):
        return sqlite.connect(path, apsw.SQLITE_OPEN_READONLY)
    if os.path.exists(f"{path}-wal"):
        raise StoreFileError(f"{path} has a WAL that must be recovered, and this user can't write beside it")
    return sqlite.connect(sqlite.uri(path, "immutable=1"), apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
