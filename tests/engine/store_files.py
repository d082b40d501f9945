"""Database files for the tests of opening: made, filled, and compared."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw

from engine.store import SqliteTransaction, open_connection
from tests.contracts.store_cases import event_row


def open_file(path: Path, **options: Any) -> apsw.Connection:
    return open_connection(path, **{"sleep": lambda seconds: None, "timeout_ms": 100, **options})


def append_events(connection: apsw.Connection, *numbers: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    tx = SqliteTransaction(connection, now_ms=0)
    for seq in numbers:
        tx.append_event(event_row(seq=seq))
    connection.execute("COMMIT")


def folder_state(folder: Path) -> dict[str, Any]:
    state: dict[str, Any] = {"": (sorted(os.listdir(folder)), folder.stat().st_mtime_ns)}
    for file in sorted(folder.iterdir()):
        content = file.read_bytes() if file.is_file() else None
        state[file.name] = (content, file.stat().st_mtime_ns, file.stat().st_mode)
    return state
