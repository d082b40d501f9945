"""Read connections: each read has one to itself, on a snapshot, and none outlives the store."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

import apsw

from engine.errors import StoreClosed
from engine.ports import Reader
from engine.store.mapping import map_error
from engine.store.transaction import SqliteReader

T = TypeVar("T")


class ReadPool:
    """Runs reads on connections that are opened when needed and used again. Safe to use from any thread."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._changed = threading.Condition()
        self._idle: list[apsw.Connection] = []
        self._busy_count = 0
        self._closed = False

    def run(self, work: Callable[[Reader], T]) -> T:
        """Run `work` on a snapshot. Raises what it raises, or a `StoreError`."""
        self._enter()
        try:
            connection = self._take()
            try:
                return _on_snapshot(connection, work)
            finally:
                self._give_back(connection)
        except apsw.Error as exc:
            raise map_error(exc) from exc
        finally:
            self._leave()

    def close(self) -> None:
        """Refuse further reads, wait for those that run, and close every connection."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._busy_count == 0)
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _enter(self) -> None:
        with self._changed:
            if self._closed:
                raise StoreClosed("the store is closed")
            self._busy_count += 1

    def _leave(self) -> None:
        with self._changed:
            self._busy_count -= 1
            self._changed.notify_all()

    def _take(self) -> apsw.Connection:
        with self._changed:
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _give_back(self, connection: apsw.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:  # it isn't worth keeping; the read's own outcome stands
            with contextlib.suppress(apsw.Error):
                connection.close()
            return
        with self._changed:
            self._idle.append(connection)


def _on_snapshot(connection: apsw.Connection, work: Callable[[Reader], T]) -> T:
    connection.execute("BEGIN")
    reader = SqliteReader(connection)
    try:
        return work(reader)
    finally:
        reader.end()
