"""Database files for the tests of the commands."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio

from engine import events as ev
from engine.cli import main
from engine.limits import EngineConfig
from engine.log import row_of
from engine.projections import project
from engine.records import Claim
from engine.store import SqliteTransaction, open_connection, open_readonly
from tests.engine.log_samples import SES, Book, claim, recovery, running

NASTY = "a\x1b]0;owned\x07b\x9b2Jc\u202ed\u2028e\x7ff"
"""Renames the window, clears the screen, reverses the writing, breaks the line, deletes."""

Run = Callable[..., tuple[int, str, str]]

FAR = 10**15
"""A lease that lasts, on any clock."""


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


def run_with(capfd: pytest.CaptureFixture[str]) -> Run:
    """What runs one command in this process: exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main([str(each) for each in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return call


def put(path: Path, change: Callable[[SqliteTransaction], None]) -> None:
    """Change rows of a database file, as a transaction of another process would."""
    connection = open_connection(path, create=False, sleep=lambda seconds: None, timeout_ms=0)
    with connection:
        change(SqliteTransaction(connection, now_ms=0))
    connection.close()


def append(path: Path, *events: ev.Stored) -> None:
    """Store more events, with what the projectors make of them."""

    def change(tx: SqliteTransaction) -> None:
        for item in events:
            project(tx, item)
            tx.append_event(row_of(item, EngineConfig()))

    put(path, change)


def process(*arguments: object, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """A command in a process of its own, its output in pipes unless it is given a place."""
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-m", "engine", *map(str, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.fspath(root)},
    )


# --- a session to ask something of --------------------------------------------------------------------


def at_rest() -> Book:
    """A session that answered one input, with two more of which one is parked."""
    book = running()
    book.answer("msg_1")
    book.add(ev.ExecutionSucceeded)
    book.by = None
    book.admit("inp_b")
    book.add(ev.InputParked, through=book.latest)
    book.admit("inp_c")
    return book


def held(path: Path, **changes: Any) -> Path:
    """A file whose session is claimed by a node that isn't there."""
    write_file(path, running().events)

    def change(tx: SqliteTransaction) -> None:
        tx.put_generation(SES, 1)
        tx.put_claim(claim(**changes))

    put(path, change)
    return path


def claim_in(path: Path) -> Claim | None:
    with open_readonly(path) as store:
        return store.read(lambda tx: tx.claim(SES))


def types(path: Path, after: int = -1) -> list[str]:
    with open_readonly(path) as store:
        return [row.type for row in store.read(lambda tx: tx.events(SES, after, 1_000))]


def quarantined(path: Path, reason: str = "boom") -> Path:
    put(path, lambda tx: tx.put_recovery(recovery(reason)))
    return path


async def in_thread(run: Run, *arguments: object) -> tuple[int, str, str]:
    """Run a command beside the engines of this test, with an event loop of its own."""
    return await trio.to_thread.run_sync(functools.partial(run, *arguments))
