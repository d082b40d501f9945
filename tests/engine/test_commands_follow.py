"""`log --follow`: stored events as they come, from whichever process, until Ctrl-C or a tombstone."""

from __future__ import annotations

import itertools
import json
import os
import pty
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import events as ev
from engine.cli import BAD_INPUT, CLEAN, INTERRUPTED, reading
from engine.ports import Reader
from engine.store import ReadOnlyStore, open_readonly
from tests.engine.command_samples import (
    NASTY,
    Run,
    append,
    process,
    put,
    run_with,
    state_of,
    tamper,
    write_file,
)
from tests.engine.log_samples import SES, Book


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs one command in this process."""
    return run_with(capfd)


@pytest.fixture
def book() -> Book:
    """A session with one event."""
    return Book().create()


@pytest.fixture
def file(tmp_path: Path, book: Book) -> Path:
    """A file with that session."""
    return write_file(tmp_path / "grows.db", book.events)


def rename(book: Book, title: str) -> ev.Stored:
    book.add(ev.SessionRenamed, title=title)
    return book.events[-1]


# --- the rows ----------------------------------------------------------------------------------------


class Pauses:
    """Stands for the passing of time: each pause does the next thing, and one too many is a failure."""

    def __init__(self, *steps: Callable[[], None]) -> None:
        self.count = 0
        self._steps = list(steps)

    def __call__(self, seconds: float) -> None:
        assert seconds == reading.POLL_S
        self.count += 1
        self._steps.pop(0)()


def nothing() -> None:
    pass


def followed(file: Path, pauses: Pauses, after: int = -1) -> list[int]:
    with open_readonly(file) as store:
        return [row.seq for row in reading.follow(store, SES, after, pauses)]


def test_it_goes_on_until_a_tombstone(file: Path, book: Book) -> None:
    """Each event is handed out once and in order, quiet spells pass, and after the tombstone it ends."""

    def grow(*titles: str) -> Callable[[], None]:
        return lambda: append(file, *[rename(book, title) for title in titles])

    def bury() -> None:
        book.add(ev.SessionDeletedEvent)
        append(file, book.events[-1])

    pauses = Pauses(nothing, grow("a"), nothing, nothing, grow("b", "c"), bury)
    assert followed(file, pauses) == [0, 1, 2, 3, 4]
    assert pauses.count == 6
    assert followed(file, Pauses(), after=2) == [3, 4]
    assert followed(file, Pauses(), after=4) == []


def test_it_catches_up_over_pages(file: Path, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log longer than a page comes whole and without a pause between its pages."""
    monkeypatch.setattr(reading, "PAGE", 3)
    append(file, *[rename(book, str(number)) for number in range(8)])
    book.add(ev.SessionDeletedEvent)
    append(file, book.events[-1])
    assert followed(file, Pauses()) == list(range(10))


def test_it_ends_when_the_session_is_purged(file: Path, book: Book) -> None:
    """A session that is gone altogether gets no more events."""
    pauses = Pauses(lambda: put(file, lambda tx: tx.erase_session(SES)))
    assert followed(file, pauses) == [0]


class Busy:
    """A store in which somebody else commits during every read; one read too many is a failure."""

    def __init__(self, store: ReadOnlyStore) -> None:
        self._store = store
        self._reads = 0

    def read(self, work: Callable[[Reader], Any]) -> Any:
        self._reads += 1
        assert self._reads < 20, "it reads without a pause"
        return self._store.read(work)

    def changed(self) -> bool:
        return True


def test_a_busy_file_is_not_read_in_a_hot_loop(file: Path, book: Book) -> None:
    """When others commit all the time, there is a pause between two reads all the same."""

    def bury() -> None:
        book.add(ev.SessionDeletedEvent)
        append(file, book.events[-1])

    pauses = Pauses(nothing, nothing, bury)
    with open_readonly(file) as store:
        rows = reading.follow(Busy(store), SES, -1, pauses)  # type: ignore[arg-type]
        assert next(rows).seq == 0
        assert [row.seq for row in itertools.islice(rows, 9)] == [1]
    assert pauses.count == 3


# --- the command -------------------------------------------------------------------------------------


def test_another_process_is_followed_until_ctrl_c(file: Path, book: Book, tmp_path: Path) -> None:
    """What this process stores is printed by that one at once; Ctrl-C ends it with 130 and without a word."""
    with process("log", file, SES, "--follow", "--json") as follower:
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["seq"] == 0
        for seq in (1, 2):
            append(file, rename(book, f"title {seq}"))
            said = json.loads(follower.stdout.readline())
            assert (said["seq"], said["data"]["title"]) == (seq, f"title {seq}")
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=30)
    assert (follower.returncode, out, err.strip()) == (INTERRUPTED, "", "")
    assert list(state_of(tmp_path)) == [os.fspath(file)]


def test_a_pipe_gets_the_same_lines_as_without_it(run: Run, file: Path, book: Book) -> None:
    """Of a session that ended, `--follow` prints what `log` prints, and ends; `--after` begins later."""
    append(file, rename(book, NASTY))
    tamper(file, f"UPDATE event SET type = 'session.{NASTY}' WHERE seq = 1")
    book.add(ev.SessionDeletedEvent)
    append(file, book.events[-1])
    for flags in ((), ("--json",), ("--after", 1)):
        code, out, err = run("log", file, SES, "-f", *flags)
        assert (code, err) == (CLEAN, "")
        assert out == run("log", file, SES, *flags)[1]
        assert not set(out) & set("\x1b\x07\x9b\u202e\u2028\x7f")


def test_a_terminal_gets_columns_line_by_line(file: Path, book: Book) -> None:
    """On a terminal each event is one line in columns, shown when it comes, with session text escaped."""
    ours, theirs = pty.openpty()
    with process("log", file, SES, "--follow", stdout=theirs) as follower:
        os.close(theirs)
        with os.fdopen(ours, "rb", closefd=True) as terminal:
            heading, first = terminal.readline().decode(), terminal.readline().decode()
            append(file, rename(book, NASTY))
            second = terminal.readline().decode()
            follower.send_signal(signal.SIGINT)
            follower.wait(30)
    assert heading.split() == ["seq", "time", "execution", "type", "data"]
    assert first.index("session.created") == second.index("session.renamed") == heading.index("type")
    assert "\t" not in heading + first + second
    assert not set(second) & set("\x1b\x07\x9b\u202e\u2028\x7f")


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_an_unknown_session_is_exit_2(run: Run, file: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Nothing is followed that isn't there, and no heading is printed."""
    before = state_of(tmp_path)
    code, out, err = run("log", file, "ses_\x1b[2J", "--follow", *flags)
    assert (code, out) == (BAD_INPUT, "")
    assert err == "Error: there is no session ses_\\x1b[2J in this database\n"
    assert state_of(tmp_path) == before


def test_a_closed_pipe_ends_it_quietly(file: Path, book: Book) -> None:
    """When whoever read has gone, the next event ends it with 141 and nothing on stderr."""
    with process("log", file, SES, "--follow", "--json") as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert follower.stdout.readline() != ""
        follower.stdout.close()
        append(file, rename(book, "nobody reads this"))
        assert follower.stderr.read() == ""
        assert follower.wait(30) == 141
