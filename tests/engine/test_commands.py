"""`python -m engine log`, `sessions`, `verify`: what they show, also on a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import apsw
import attrs
import pytest

from engine import events as ev
from engine.cli import BREACHED, CLEAN, main, show
from engine.verify import CHECKS, NOT_CHECKABLE
from tests.engine.command_samples import NASTY, Run, tamper, write_file
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


# --- verify ------------------------------------------------------------------------------------------


def test_verify_says_clean(run: Run, file: Path) -> None:
    """A legal file exits 0, and says what was checked and what can't be."""
    code, out, err = run("verify", file)
    assert (code, err) == (CLEAN, "")
    assert f"{file}: 1 session, {len(good().events)} events\n" in out
    assert "checked: I1, I4, I5, I6, I7, I8, I10, I11, I13\n" in out
    assert "not checkable here, for want of a trace: I2, I3, I9, I12, I14, I15, I16\n" in out
    assert out.endswith("\nclean\n")


def test_verify_json_has_its_keys(run: Run, file: Path) -> None:
    """The JSON report is one object with the promised keys."""
    code, out, _ = run("verify", file, "--json")
    report = json.loads(out)
    assert code == CLEAN
    assert report == {
        "file": str(file),
        "sessions": 1,
        "events": len(good().events),
        "damage": [],
        "breaches": [],
        "pending": [],
        "unreadable": [],
        "checked": list(CHECKS),
        "not_checkable": dict(NOT_CHECKABLE),
        "ok": True,
    }


def test_verify_names_a_breach(run: Run, file: Path) -> None:
    """A tampered row makes it exit 1, with the invariant, the session, the seq and a sentence."""
    tamper(file, "UPDATE session SET status = 'idle'")
    code, out, _ = run("verify", file)
    at = max(item.seq for item in good().events if item.type == "execution.failed")
    said = "the session's row says status 'idle', and the log says 'failed'"
    assert code == BREACHED
    assert f"breach of I10\t{SES}\t{at}\t{said}\n" in out
    assert out.endswith("\nNOT CLEAN: 1 broken\n")
    code, out, _ = run("verify", file, "--json")
    assert code == BREACHED
    assert json.loads(out)["breaches"] == [
        {"invariant": "I10", "session_id": SES, "seq": at, "sentence": said}
    ]
    assert json.loads(out)["ok"] is False


def test_verify_names_what_it_cant_read(run: Run, file: Path) -> None:
    """An event of an unknown type is named, the rest is checked, and the exit code is 1."""
    tamper(file, "UPDATE event SET version = 7 WHERE seq = 5")
    code, out, _ = run("verify", file)
    assert code == BREACHED
    assert f"unreadable\t{SES}\t5\tunknown event reasoning.started version 7 at {SES} seq 5" in out
    assert "breach" not in out
    (entry,) = json.loads(run("verify", file, "--json")[1])["unreadable"]
    assert (entry["type"], entry["version"], entry["seq"]) == ("reasoning.started", 7, 5)


def test_verify_lists_what_waits(run: Run, tmp_path: Path) -> None:
    """Pending input is listed and no fault."""
    book = Book().create()
    book.admit("inp_a")
    path = write_file(tmp_path / "waits.db", book.events)
    code, out, _ = run("verify", path)
    assert code == CLEAN
    assert "pending input\tses_1\t-\t1 admitted and not promoted" in out
    assert out.endswith("\nclean, with 1 pending\n")
    assert json.loads(run("verify", path, "--json")[1])["pending"][0]["kind"] == "input"


@pytest.mark.parametrize("what", ["event", "sqlite_autoindex_event_1"])
def test_verify_reports_damage(run: Run, file: Path, what: str) -> None:
    """A page of zeros in a table or an index is damage: exit 1 and a finding, no traceback."""
    connection = apsw.Connection(os.fspath(file))
    page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (what,)).get
    size = connection.pragma("page_size")
    connection.close()
    with open(file, "r+b") as raw:
        raw.seek((page - 1) * size)
        raw.write(bytes(size))
    code, out, err = run("verify", file)
    assert (code, err) == (BREACHED, "")
    assert "damage\t" in out
    assert "damaged\n" in out.splitlines(keepends=True)[-1]


# --- log and sessions --------------------------------------------------------------------------------


def test_log_prints_every_event(run: Run, file: Path) -> None:
    """One line per event in order, below a heading; `--after` begins later."""
    code, out, _ = run("log", file, SES)
    lines = [line.split("\t") for line in out.splitlines()]
    assert code == CLEAN
    assert lines[0] == ["seq", "time", "execution", "type", "data"]
    assert [(int(line[0]), line[3]) for line in lines[1:]] == [(i.seq, i.type) for i in good().events]
    assert lines[2][1:3] == ["1970-01-01 00:00:01.001Z", "-"]
    assert lines[3][2] == "exe_1"
    _, later, _ = run("log", file, SES, "--after", 50)
    assert later.splitlines()[1:] == out.splitlines()[52:]


def test_log_json_is_one_object_per_line(run: Run, file: Path) -> None:
    """Each line is the whole event with its envelope."""
    _, out, _ = run("log", file, SES, "--json", "--after", "2")
    events = [json.loads(line) for line in out.splitlines()]
    assert [each["seq"] for each in events] == list(range(3, len(good().events)))
    assert events[0] == {
        "id": "evt_3",
        "session_id": SES,
        "seq": 3,
        "type": "input.promoted",
        "version": 1,
        "created": 1003,
        "execution_id": "exe_1",
        "data": {"input_id": "inp_a", "session_id": SES},
    }


def test_log_goes_beyond_a_page(run: Run, tmp_path: Path) -> None:
    """A log longer than a page is printed whole."""
    book = Book().create()
    for number in range(2_100):
        book.add(ev.SessionRenamed, title=str(number))
    path = write_file(tmp_path / "long.db", book.events)
    _, out, _ = run("log", path, SES, "--json")
    assert [json.loads(line)["seq"] for line in out.splitlines()] == list(range(2_101))


def test_log_marks_what_it_cant_read(run: Run, file: Path) -> None:
    """An undecodable event is marked with the reason, and the log goes on."""
    tamper(file, "UPDATE event SET type = 'text.painted' WHERE seq = 5")
    tamper(file, "UPDATE event SET data = x'7bff' WHERE seq = 6")
    code, out, _ = run("log", file, SES)
    assert code == CLEAN
    assert len(out.splitlines()) == 1 + len(good().events)
    assert f"text.painted\tUNREADABLE: unknown event text.painted version 1 at {SES} seq 5" in out
    events = [json.loads(line) for line in run("log", file, SES, "--json")[1].splitlines()]
    assert "unknown event text.painted" in events[5]["unreadable"]
    assert events[6]["data"] == {"not_json": "{\ufffd"}
    assert "unreadable" not in events[7]


def test_sessions_are_listed(run: Run, file: Path) -> None:
    """A session's line has its id, status, claim, number of events, waiting inputs and title."""
    _, out, _ = run("sessions", file)
    count = len(good().events)
    assert out.splitlines() == [
        "session\tstatus\tclaim\tevents\tpending\ttitle",
        f"{SES}\tfailed\t-\t{count}\t1 (1 parked)\trenamed",
    ]
    (only,) = [json.loads(line) for line in run("sessions", file, "--json")[1].splitlines()]
    assert only["session_id"] == SES
    assert (only["status"], only["latest_seq"], only["pending"], only["parked"]) == (
        "failed",
        count - 1,
        1,
        1,
    )
    assert (only["claim"], only["recovery"], only["deleted"]) == (None, None, False)


@pytest.mark.parametrize(
    ("sql", "status"),
    [
        ("UPDATE session SET deleted = 1", "deleted"),
        ("INSERT INTO recovery VALUES ('ses_1', 'exe_5', NULL, NULL, 1, 0, 'boom')", "quarantined"),
        ("INSERT INTO recovery VALUES ('ses_1', 'exe_5', NULL, NULL, 1, 0, NULL)", "failed"),
    ],
)
def test_sessions_say_deleted_and_quarantined(run: Run, file: Path, sql: str, status: str) -> None:
    """The status tells what the projection's own column doesn't."""
    tamper(file, sql)
    assert run("sessions", file)[1].splitlines()[1].split("\t")[1] == status


# --- session text can't drive a terminal -------------------------------------------------------------


def nasty_file(tmp_path: Path) -> Path:
    book = Book().create()
    book.add(ev.SessionRenamed, title=NASTY)
    book.admit("inp_a")
    payload = {"text": NASTY, NASTY: "日本 👩\u200d🚀"}
    book.events[2] = attrs.evolve(book.events[2], event=attrs.evolve(book.events[2].event, payload=payload))
    path = write_file(tmp_path / "nasty.db", book.events)
    tamper(path, f"UPDATE event SET type = 'input.{NASTY}' WHERE seq = 2")
    return path


@pytest.mark.parametrize("command", ["log", "sessions", "verify"])
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_session_text_is_escaped(run: Run, tmp_path: Path, command: str, flags: tuple[str, ...]) -> None:
    """No control, format or line-breaking character of a title, a payload or a type gets through."""
    path = nasty_file(tmp_path)
    _, out, _ = run(command, path, *((SES,) if command == "log" else ()), *flags)
    assert not set(out) & set("\x1b\x07\x9b\u202e\u2028\x7f\r\x08")
    assert "owned" in out


def test_what_is_shown_can_be_read_back() -> None:
    """JSON output is pure printable ASCII and loses nothing; letters and joined emoji stay as they are."""
    said = show.json_text({"text": NASTY})
    assert said.isascii()
    assert said.isprintable()
    assert json.loads(said) == {"text": NASTY}
    assert show.plain("日本 👩\u200d🚀 naïve") == "日本 👩\u200d🚀 naïve"
    assert show.plain(NASTY) == "a\\x1b]0;owned\\x07b\\x9b2Jc\\u202ed\\u2028e\\x7ff"
    assert show.plain("tab\tline\n") == "tab\\tline\\n"
    assert show.when(10**18) == str(10**18)


def on_a_terminal(*arguments: object) -> str:
    """What a command writes to a pseudo-terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    child = subprocess.Popen(
        [sys.executable, "-m", "engine", *map(str, arguments)], stdout=theirs, env=environment
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # what Linux says at the end of a pseudo-terminal
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    child.wait()
    return said.decode()


def test_a_terminal_gets_a_table(tmp_path: Path) -> None:
    """On a terminal there is a drawn table, nothing of it is lost, and session text is escaped there, too."""
    said = on_a_terminal("sessions", nasty_file(tmp_path))
    assert "──" in said
    assert "a\\x1b]0;owned\\x07b\\x9b2Jc" in said
    assert "\x1b]" not in said
    assert "\x9b" not in said
