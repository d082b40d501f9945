"""The commands only look: bad files are refused, good ones stay as they are, and pipes may close."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from engine import events as ev
from engine.cli import BAD_INPUT, CLEAN, main
from engine.providers.scripted import ScriptedProvider
from engine.service import open_engine
from engine.system import RealClock
from tests.engine.command_samples import Run, state_of, tamper, write_file
from tests.engine.log_samples import SES, Book, good


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs one command in this process: exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main([str(each) for each in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return call


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with the long legal log."""
    return write_file(tmp_path / "good.db", good().events)


# --- they only look ----------------------------------------------------------------------------------


def not_a_file(folder: Path) -> Path:
    return folder / "missing.db"


def a_folder(folder: Path) -> Path:
    (folder / "folder.db").mkdir()
    return folder / "folder.db"


def not_a_database(folder: Path) -> Path:
    (folder / "text.db").write_text("certainly not a database " * 100)
    return folder / "text.db"


def an_empty_file(folder: Path) -> Path:
    (folder / "empty.db").touch()
    return folder / "empty.db"


def a_foreign_database(folder: Path) -> Path:
    tamper(folder / "foreign.db", "CREATE TABLE mine (x); INSERT INTO mine VALUES (1)")
    return folder / "foreign.db"


def a_newer_schema(folder: Path) -> Path:
    path = write_file(folder / "newer.db", good().events)
    tamper(path, "PRAGMA user_version = 99")
    return path


def a_file_in_no_folder(folder: Path) -> Path:
    return folder / "nowhere" / "x.db"


BAD_FILES = {
    not_a_file: "does not exist",
    a_folder: "is a folder",
    not_a_database: "is not a database",
    an_empty_file: "is empty",
    a_foreign_database: "not one of Fencepost",
    a_newer_schema: "schema version 99",
    a_file_in_no_folder: "folder does not exist",
}


@pytest.mark.parametrize("command", ["log", "sessions", "verify"])
@pytest.mark.parametrize("make", BAD_FILES, ids=lambda make: make.__name__)
def test_a_bad_file_is_one_line_and_exit_2(
    run: Run, tmp_path: Path, command: str, make: Callable[[Path], Path]
) -> None:
    """What isn't a usable database is told in one line on stderr, with nothing created or changed."""
    path = make(tmp_path)
    before = state_of(tmp_path)
    code, out, err = run(command, path, *((SES,) if command == "log" else ()))
    assert (code, out) == (BAD_INPUT, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert BAD_FILES[make] in err
    assert state_of(tmp_path) == before


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_an_unknown_session_is_exit_2(run: Run, file: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """`log` of a session that isn't there says so, and prints no heading."""
    before = state_of(tmp_path)
    code, out, err = run("log", file, "ses_\x1b[2J", *flags)
    assert (code, out) == (BAD_INPUT, "")
    assert err == "Error: there is no session ses_\\x1b[2J in this database\n"
    assert state_of(tmp_path) == before


@pytest.mark.parametrize(
    "arguments", [("verify",), ("log", "x"), ("paint",), ("log", "a", "b", "--after", "x")]
)
def test_a_wrong_command_line_is_exit_2(run: Run, arguments: tuple[str, ...]) -> None:
    """Usage errors are bad input, and go to stderr."""
    code, out, err = run(*arguments)
    assert (code, out) == (BAD_INPUT, "")
    assert "Error: " in err


@pytest.mark.parametrize("command", ["log", "sessions", "verify"])
def test_looking_changes_nothing(run: Run, file: Path, tmp_path: Path, command: str) -> None:
    """The folder and every byte in it stay as they were."""
    before = state_of(tmp_path)
    assert run(command, file, *((SES,) if command == "log" else ()))[0] == CLEAN
    assert state_of(tmp_path) == before


@pytest.mark.parametrize("arguments", [(), ("log",), ("sessions",), ("verify",), ("demo",)])
def test_help_is_there(run: Run, arguments: tuple[str, ...]) -> None:
    """Each command explains itself, and exits 0."""
    code, out, _ = run(*arguments, "--help")
    assert code == CLEAN
    assert out.startswith("Usage: python -m engine")
    assert len(out.splitlines()) > 5


# --- beside an engine, and in a pipe -----------------------------------------------------------------


def test_they_work_while_an_engine_is_at_work(run: Run, tmp_path: Path) -> None:
    """An engine that has the file open doesn't mind, and a crash's WAL is read and left alone."""
    path, crashed = tmp_path / "live.db", tmp_path / "crashed"

    async def live() -> str:
        async with open_engine(path, provider=ScriptedProvider(RealClock())) as engine:
            session = await engine.create_session(title="open")
            assert (await session.run("hello")).how == "succeeded"
            assert run("verify", path)[0] == CLEAN
            assert "\topen\n" in run("sessions", path)[1]
            shutil.copytree(tmp_path, crashed)
            assert (await session.run("again")).how == "succeeded"
            return session.id

    session_id = trio.run(live)
    assert (crashed / "live.db-wal").exists()
    before = state_of(crashed)
    code, out, _ = run("log", crashed / "live.db", session_id)
    assert (code, "execution.succeeded" in out) == (CLEAN, True)
    after = state_of(crashed)
    assert after[str(crashed / "live.db")] == before[str(crashed / "live.db")]
    assert after[str(crashed / "live.db-wal")] == before[str(crashed / "live.db-wal")]
    assert run("verify", path)[0] == CLEAN


@pytest.mark.parametrize("command", ["log", "sessions", "verify"])
def test_a_broken_pipe_is_quiet(file: Path, command: str) -> None:
    """Whoever stops reading gets no traceback, and no exit code that a check could be mistaken for."""
    theirs, ours = os.pipe()
    os.close(theirs)
    arguments = [command, str(file), *((SES,) if command == "log" else ())]
    done = subprocess.run(
        [sys.executable, "-m", "engine", *arguments], stdout=ours, stderr=subprocess.PIPE, check=False
    )
    os.close(ours)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_narrow_encoding_loses_nothing(tmp_path: Path) -> None:
    """On an output that can't say every letter, those beyond it are shown escaped instead of failing."""
    book = Book().create()
    book.add(ev.SessionRenamed, title="naïve 日本")
    path = write_file(tmp_path / "names.db", book.events)
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(
        [sys.executable, "-m", "engine", "sessions", str(path)],
        capture_output=True,
        env=environment,
        check=True,
    )
    assert b"na\xefve \\u65e5\\u672c" in done.stdout


def test_the_public_names_are_found_and_cost_nothing_before() -> None:
    """Importing the package loads no event loop, no database and no command; each public name is there."""
    code = (
        "import sys, engine; heavy = {'trio', 'apsw', 'jsonschema', 'click', 'rich', 'msgspec'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules);"
        "assert all(getattr(engine, name) is not None for name in engine.__all__);"
        "assert set(engine.__all__) <= set(dir(engine));"
        "assert engine.errors.ToolError is engine.ToolError"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    from engine import __all__ as names

    assert names == sorted(names, key=lambda name: (name.islower(), name))
    with pytest.raises(ImportError):
        exec("from engine import nonsense")
