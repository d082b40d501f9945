"""Database files for the tests of the commands."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw

from engine import events as ev
from engine.limits import EngineConfig
from engine.log import row_of
from engine.projections import project
from engine.store import SqliteTransaction, open_connection
from tests.engine.log_samples import SES

NASTY = "a\x1b]0;owned\x07b\x9b2Jc\u202ed\u2028e\x7ff"
"""Renames the window, clears the screen, reverses the writing, breaks the line, deletes."""

Run = Callable[..., tuple[int, str, str]]


def write_file(path: Path, events: Sequence[ev.Stored]) -> Path:
    """A database file that holds the events and what the projectors make of them."""
    connection = open_connection(path, sleep=lambda seconds: None, timeout_ms=0)
    with connection:
        tx = SqliteTransaction(connection, now_ms=0)
        for item in events:
            project(tx, item)
            tx.append_event(row_of(item, EngineConfig()))
        tx.put_generation(SES, 6)
    connection.close()
    return path


def tamper(path: Path, sql: str) -> None:
    connection = apsw.Connection(os.fspath(path))
    connection.execute(sql)
    connection.close()


def state_of(folder: Path) -> dict[str, str]:
    """Each file below a folder, and what is in it."""
    return {
        os.fspath(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
