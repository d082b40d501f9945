"""`delete` and `purge`: what is buried, what is erased, and who is asked first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.cli import BAD_INPUT, CLEAN, NOT_DONE
from engine.records import Phase
from tests.engine.command_samples import (
    FAR,
    Run,
    at_rest,
    claim_in,
    held,
    in_thread,
    run_with,
    state_of,
    types,
    write_file,
)
from tests.engine.log_samples import SES
from tests.engine.real import Model, assert_clean, engine_on, types_in


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs one command in this process."""
    return run_with(capfd)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a session that nobody executes."""
    return write_file(tmp_path / "rest.db", at_rest().events)


# --- delete and purge --------------------------------------------------------------------------------


def test_delete_buries_and_purge_erases(run: Run, file: Path) -> None:
    """A deleted session keeps its log until it is purged; deleting it again changes nothing."""
    assert run("delete", file, SES) == (CLEAN, "deleted; `purge` erases what is left of it\n", "")
    assert types(file)[-3:] == ["input.cancelled", "input.cancelled", "session.deleted"]
    assert run("delete", file, SES) == (CLEAN, "it was deleted before\n", "")
    assert json.loads(run("delete", file, SES, "--json")[1])["deleted"] is True
    code, out, _ = run("purge", file, "--before", "2000-01-01")
    assert (code, out) == (CLEAN, "erased 0 sessions deleted before 2000-01-01 00:00:00.000Z\n")
    assert run("log", file, SES)[0] == CLEAN
    code, out, _ = run("purge", file, "--before", str(FAR), "--json")
    assert (code, json.loads(out)) == (CLEAN, {"before_ms": FAR, "erased": 1})
    assert run("log", file, SES)[0] == BAD_INPUT
    assert run("verify", file)[0] == CLEAN


@pytest.mark.parametrize(
    ("expires_at", "phase", "said"),
    [
        (FAR, Phase.CONTINUE, "not deleted: own_1 has not stopped within 1 s; if it is gone"),
        (FAR, Phase.CANCELLING, "not deleted: own_1 has not stopped within 1 s; if it is gone"),
        (1, Phase.CONTINUE, "not deleted: own_1 held the session and is gone; the next running node"),
        (1, Phase.CANCELLING, "not deleted: own_1 held the session and is gone; the next running node"),
    ],
)
def test_delete_of_a_held_session_is_bounded(
    run: Run, tmp_path: Path, expires_at: int, phase: Phase, said: str
) -> None:
    """Who holds it is asked, isn't robbed, and the command gives up within its wait: exit 1."""
    path = held(tmp_path / "held.db", expires_at=expires_at, phase=phase)
    code, out, _ = run("delete", path, SES, "--wait", 1)
    assert code == NOT_DONE
    assert out.startswith(said)
    assert out.endswith("; try again then\n")
    assert "session.deleted" not in types(path)
    assert claim_in(path) is not None
    said_json = json.loads(run("delete", path, SES, "--wait", 1, "--json")[1])
    assert (said_json["deleted"], said_json["stopped"]) == (False, False)


@pytest.mark.trio
async def test_delete_stops_another_node(run: Run, tmp_path: Path) -> None:
    """The node that executes the session lets go of it, and the tombstone is written."""
    path, model = tmp_path / "live.db", Model(held=True)
    async with engine_on(path, model) as engine:
        session = await engine.create_session()
        await session.send("hello")
        await model.wait_asked()
        code, _, _ = await in_thread(run, "delete", path, session.id)
        assert code == CLEAN
        assert (await types_in(engine, session.id))[-2:] == ["execution.interrupted", "session.deleted"]
    await assert_clean(path)


@pytest.mark.parametrize(
    ("text", "before_ms"),
    [
        ("0", 0),
        ("1764504000123", 1764504000123),
        ("2025-11-30T12:00:00Z", 1764504000000),
        ("2025-11-30T12:00:00.123", 1764504000123),
        ("2025-11-30 14:00+02:00", 1764504000000),
        ("2025-11-30", 1764460800000),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_purge_understands_times(run: Run, file: Path, text: str, before_ms: int) -> None:
    """ISO date-times, in UTC unless they say otherwise, and milliseconds."""
    code, out, _ = run("purge", file, "--before", text, "--json")
    assert (code, json.loads(out)["before_ms"]) == (CLEAN, before_ms)


@pytest.mark.parametrize("text", ["", "-5", "yesterday", "2025-13-01", "1e3", "٣", "9" * 5_000, "\x1b[2J"])
def test_purge_refuses_what_is_no_time(run: Run, file: Path, tmp_path: Path, text: str) -> None:
    """Anything else is exit 2, named without driving the terminal, and nothing is changed."""
    before = state_of(tmp_path)
    code, out, err = run("purge", file, "--before", text)
    assert (code, out) == (BAD_INPUT, "")
    assert "is neither an ISO date-time" in err
    assert "\x1b" not in err
    assert state_of(tmp_path) == before
