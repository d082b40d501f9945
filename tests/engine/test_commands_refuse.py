"""What the commands that ask for something refuse: with one line, exit status 2 and nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine import events as ev
from engine.cli import BAD_INPUT, CLEAN
from tests.engine.command_samples import (
    Run,
    append,
    at_rest,
    claim_in,
    held,
    run_with,
    state_of,
    tamper,
    types,
    write_file,
)
from tests.engine.log_samples import SES
from tests.engine.real import lock_of


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs one command in this process."""
    return run_with(capfd)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a session that nobody executes."""
    return write_file(tmp_path / "rest.db", at_rest().events)


# --- what they refuse --------------------------------------------------------------------------------

ASKING: dict[str, tuple[str, ...]] = {
    "interrupt": ("interrupt",),
    "resume": ("resume",),
    "delete": ("delete",),
    "release": ("quarantine", "release"),
    "discard": ("quarantine", "discard"),
}


def missing(folder: Path) -> Path:
    return folder / "missing.db"


def foreign(folder: Path) -> Path:
    tamper(folder / "foreign.db", "CREATE TABLE mine (x); INSERT INTO mine VALUES (1)")
    return folder / "foreign.db"


def newer(folder: Path) -> Path:
    path = write_file(folder / "newer.db", at_rest().events)
    tamper(path, "PRAGMA user_version = 99")
    return path


BAD_FILES = {missing: "does not exist", foreign: "not one of Fencepost", newer: "schema version 99"}


@pytest.mark.parametrize("flags", [(), ("--json",)])
@pytest.mark.parametrize("make", BAD_FILES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("command", [*ASKING, "purge", "list", "status"])
def test_a_bad_file_is_one_line_and_exit_2(
    run: Run, tmp_path: Path, command: str, make: Callable[[Path], Path], flags: tuple[str, ...]
) -> None:
    """What isn't a usable database is told in one line on stderr, with nothing created or changed."""
    path = make(tmp_path)
    before = state_of(tmp_path)
    lines = {
        "purge": ("purge", path, "--before", "1"),
        "list": ("quarantine", "list", path),
        "status": ("status", path),
    }
    code, out, err = run(*lines.get(command, (*ASKING.get(command, ()), path, SES)), *flags)
    assert (code, out) == (BAD_INPUT, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert BAD_FILES[make] in err
    assert state_of(tmp_path) == before


@pytest.mark.parametrize("flags", [(), ("--json",)])
@pytest.mark.parametrize("command", ASKING)
def test_an_unknown_session_is_exit_2(
    run: Run, file: Path, tmp_path: Path, command: str, flags: tuple[str, ...]
) -> None:
    """It is named, escaped, and nothing is changed."""
    before = state_of(tmp_path)
    code, out, err = run(*ASKING[command], file, "ses_\x1b[2J", *flags)
    assert (code, out) == (BAD_INPUT, "")
    assert err == "Error: there is no session ses_\\x1b[2J in this database\n"
    assert state_of(tmp_path) == before


@pytest.mark.parametrize("command", [name for name in ASKING if name != "delete"])
def test_a_deleted_session_is_exit_2(run: Run, file: Path, tmp_path: Path, command: str) -> None:
    """A tombstone is asked for nothing, and stays as it is."""
    book = at_rest()
    book.add(ev.SessionDeletedEvent)
    append(file, book.events[-1])
    before = state_of(tmp_path)
    code, out, err = run(*ASKING[command], file, SES)
    assert (code, out, err) == (BAD_INPUT, "", f"Error: session {SES} was deleted\n")
    assert state_of(tmp_path) == before


def test_a_locked_file_is_exit_2(run: Run, file: Path) -> None:
    """If the request can't be written within the wait, it isn't said to have been made."""
    lock = lock_of(file)
    code, out, err = run("interrupt", file, SES, "--wait", 1)
    lock.close()
    assert (code, out) == (BAD_INPUT, "")
    assert "has held the write lock for" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["interrupt", "delete"])
def test_what_waits_for_a_node_starts_nothing(run: Run, tmp_path: Path, command: str) -> None:
    """A free claim is neither taken over nor settled by a command, whatever it wakes."""
    path = held(tmp_path / "free.db", expires_at=0)
    before = types(path)
    run(command, path, SES, "--wait", 1)
    after = claim_in(path)
    assert types(path) == before
    assert after is not None
    assert (after.owner_id, after.execution_id, after.expires_at) == ("own_1", "exe_1", 0)


@pytest.mark.parametrize(
    "arguments",
    [(*line, "x.db", "ses") for line in ASKING.values()]
    + [("purge", "x.db"), ("quarantine",), ("quarantine", "list"), ("status", "x.db")],
    ids=" ".join,
)
def test_help_is_there(run: Run, arguments: tuple[str, ...]) -> None:
    """Each command explains itself, and exits 0."""
    code, out, _ = run(*arguments, "--help")
    assert code == CLEAN
    assert out.startswith("Usage: python -m engine")
    assert len(out.splitlines()) > 5
