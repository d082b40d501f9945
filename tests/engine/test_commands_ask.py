"""`interrupt`, `resume`, `quarantine`: what they ask of nodes that are there or gone."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from pathlib import Path

import attrs
import pytest

from engine.cli import BAD_INPUT, CLEAN, INTERRUPTED, NOT_DONE
from engine.records import Phase
from tests.engine.command_samples import (
    FAR,
    NASTY,
    Run,
    at_rest,
    claim_in,
    held,
    in_thread,
    process,
    quarantined,
    run_with,
    state_of,
    types,
    write_file,
)
from tests.engine.log_samples import SES, claim, recovery, running
from tests.engine.real import Model, assert_clean, engine_on, types_in, wait_for


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs one command in this process."""
    return run_with(capfd)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a session that nobody executes."""
    return write_file(tmp_path / "rest.db", at_rest().events)


# --- interrupt ---------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_interrupt_stops_another_node(run: Run, tmp_path: Path) -> None:
    """The node that executes the session settles it, and the command says so and exits 0."""
    path, model = tmp_path / "live.db", Model(held=True)
    async with engine_on(path, model) as engine:
        session = await engine.create_session()
        await session.send("hello")
        await model.wait_asked()
        code, out, err = await in_thread(run, "interrupt", path, session.id)
        assert (code, out) == (
            CLEAN,
            "settled: the execution was stopped, its log is whole; 0 inputs parked\n",
        )
        held_by = f"{engine.node.owner_id} holds the session in phase unknown"
        assert err == f"{held_by}; waiting up to 20 s until it has stopped\n"
        assert "execution.interrupted" in await types_in(engine, session.id)
    await assert_clean(path)


def test_interrupt_of_what_doesnt_run_parks(run: Run, file: Path) -> None:
    """Without a claim the pending input is parked, nothing is executed, and the exit code is 0."""
    before = types(file)
    code, out, err = run("interrupt", file, SES, "--json")
    assert (code, err) == (CLEAN, "")
    assert json.loads(out) == {
        "session_id": SES,
        "answer": "not_running",
        "stopped": True,
        "holder": None,
        "parked": 2,
        "claim": None,
    }
    assert types(file) == [*before, "input.parked"]
    assert run("interrupt", file, SES)[1] == "not_running: nobody held the session; 2 inputs parked\n"
    assert types(file) == [*before, "input.parked"]


@pytest.mark.trio
async def test_interrupt_asks_a_dead_holder(run: Run, tmp_path: Path) -> None:
    """If the holder is gone the request is stored and nothing is taken over: exit 1, and it is said who goes
    on; the next running node then finishes the interruption."""
    path = held(tmp_path / "dead.db", expires_at=1)
    before = claim_in(path)
    code, out, err = await in_thread(run, "interrupt", path, SES, "--wait", 1)
    assert code == NOT_DONE
    assert out == (
        "requested: own_1 held the session and is gone; the next running node finishes the interruption\n"
    )
    assert "own_1 holds the session in phase continue; waiting up to 1 s" in err
    assert before is not None
    assert claim_in(path) == attrs.evolve(before, interrupt_seq=3)
    assert types(path) == [item.type for item in running().events]
    model = Model()
    async with engine_on(path, model) as engine:
        await wait_for(engine, SES, "execution.interrupted")
        await engine.wait_idle()
    assert model.asked == []
    await assert_clean(path)


def test_interrupt_asks_a_silent_holder(run: Run, tmp_path: Path) -> None:
    """A lease that still runs is respected: exit 1, and it is said when it ends."""
    path = held(tmp_path / "silent.db", expires_at=FAR)
    code, out, err = run("interrupt", path, SES, "--wait", 1, "--json")
    said = json.loads(out)
    assert (code, err) == (NOT_DONE, "")
    assert (said["answer"], said["stopped"], said["holder"]) == ("requested", False, "live")
    assert (said["claim"]["owner_id"], said["claim"]["interrupt_seq"]) == ("own_1", 3)
    code, out, _ = run("interrupt", path, SES, "--wait", 1)
    assert out.startswith("requested: own_1 has not stopped within 1 s; if it is gone, its lease ends in 9")


def test_interrupt_meets_another_one(run: Run, tmp_path: Path) -> None:
    """While a live holder settles an earlier interrupt nothing is asked again: exit 1."""
    path = held(tmp_path / "settling.db", phase=Phase.CANCELLING, expires_at=FAR, interrupt_seq=2)
    before = claim_in(path)
    code, out, _ = run("interrupt", path, SES)
    assert (code, out) == (NOT_DONE, "already_settling: own_1 is finishing another interrupt\n")
    assert claim_in(path) == before


def test_interrupt_meets_one_that_nobody_finishes(run: Run, tmp_path: Path) -> None:
    """If the holder went while it was settling, that is said, and the next node is to settle: exit 1."""
    path = held(tmp_path / "left.db", phase=Phase.CANCELLING, expires_at=1, interrupt_seq=2)
    code, out, _ = run("interrupt", path, SES, "--wait", 1)
    assert code == NOT_DONE
    assert ": own_1 held the session and is gone; the next running node finishes the interruption\n" in out
    after = claim_in(path)
    assert after is not None
    assert (after.owner_id, after.phase, after.expires_at) == ("own_1", Phase.CANCELLING, 1)


def test_ctrl_c_ends_the_wait_and_keeps_the_request(tmp_path: Path) -> None:
    """Whoever is tired of waiting gets 130 and no traceback; what was asked stays asked."""
    path = held(tmp_path / "tired.db", expires_at=FAR)
    with process("interrupt", path, SES) as asking:
        while (row := claim_in(path)) is not None and row.interrupt_seq is None:
            # looking without a pause could keep the command itself from opening the file
            with contextlib.suppress(subprocess.TimeoutExpired):
                pytest.fail(f"the command ended by itself with {asking.wait(timeout=0.05)}")
        asking.send_signal(signal.SIGINT)
        out, err = asking.communicate(timeout=30)
    assert (asking.returncode, out) == (INTERRUPTED, "")
    assert err.strip().splitlines() == [
        "own_1 holds the session in phase continue; waiting up to 20 s until it has stopped"
    ]
    assert [claim_in(path)] == [claim(expires_at=FAR, interrupt_seq=3)]


# --- resume ------------------------------------------------------------------------------------------


def test_resume_unparks_and_runs_nothing(run: Run, file: Path) -> None:
    """Parked input is unparked once; a second time there is nothing to do, and neither is an error."""
    before = types(file)
    assert run("resume", file, SES) == (CLEAN, "resumed: 1 input; the next running node goes on\n", "")
    assert types(file) == [*before, "input.resumed"]
    assert run("resume", file, SES) == (CLEAN, "nothing was parked\n", "")
    assert types(file) == [*before, "input.resumed"]
    assert json.loads(run("resume", file, SES, "--json")[1]) == {
        "session_id": SES,
        "resumed": False,
        "inputs": 0,
        "quarantined": False,
    }
    assert claim_in(file) is None


def test_resume_of_a_quarantined_session_says_so(run: Run, file: Path) -> None:
    """Its input is unparked, and it still isn't executed."""
    quarantined(file)
    code, out, _ = run("resume", file, SES)
    assert (code, out) == (CLEAN, "resumed: 1 input; it is in quarantine: release it\n")


@pytest.mark.trio
async def test_a_running_node_goes_on_with_what_was_resumed(run: Run, file: Path) -> None:
    """A node in another process notices what the command wrote and answers the input."""
    assert (await in_thread(run, "interrupt", file, SES))[0] == CLEAN
    async with engine_on(file) as engine:
        await engine.wait_idle()
        code, out, _ = await in_thread(run, "resume", file, SES, "--json")
        assert (code, json.loads(out)["inputs"]) == (CLEAN, 2)
        await engine.recovery.sweep()
        assert (await engine.wait_turn(SES, "inp_c")).how == "succeeded"
    await assert_clean(file)


# --- quarantine --------------------------------------------------------------------------------------


def test_quarantine_is_listed(run: Run, file: Path, tmp_path: Path) -> None:
    """Each session in quarantine with its reason; nothing is changed."""
    assert run("quarantine", "list", file) == (CLEAN, "session\texecution\ttakeovers\ttitle\treason\n", "")
    quarantined(file, NASTY)
    before = state_of(tmp_path)
    code, out, _ = run("quarantine", "list", file)
    assert (code, out.splitlines()[1]) == (
        CLEAN,
        f"{SES}\texe_1\t0\tt\ta\\x1b]0;owned\\x07b\\x9b2Jc\\u202ed\\u2028e\\x7ff",
    )
    (line,) = run("quarantine", "list", file, "--json")[1].splitlines()
    assert json.loads(line) == {"title": "t", **attrs.asdict(recovery(NASTY))}
    assert state_of(tmp_path) == before


def test_release_lifts_it_once(run: Run, file: Path) -> None:
    """The reason is forgotten, and the input that waits is told; a second time there is nothing to lift."""
    quarantined(file)
    code, out, err = run("quarantine", "release", file, SES)
    assert (code, out, err) == (CLEAN, "released; 1 input waiting: the next running node goes on\n", "")
    assert run("sessions", file)[1].splitlines()[1].split("\t")[1] == "idle"
    code, out, err = run("quarantine", "release", file, SES)
    assert (code, out, err) == (BAD_INPUT, "", f"Error: session {SES} is in no quarantine\n")


def test_release_without_input_says_what_is_next(run: Run, file: Path) -> None:
    """Without input that waits, no node has a reason to look at the session before there is some."""
    run("interrupt", file, SES)
    quarantined(file)
    assert json.loads(run("quarantine", "release", file, SES, "--json")[1]) == {
        "session_id": SES,
        "released": True,
        "waiting": 0,
    }
    quarantined(file)
    out = run("quarantine", "release", file, SES)[1]
    assert out == "released; 0 inputs waiting: the next running node goes on\n"


def test_discard_deletes_only_what_is_in_quarantine(run: Run, file: Path, tmp_path: Path) -> None:
    """A healthy session is refused and stays as it was; a quarantined one is deleted."""
    before = state_of(tmp_path)
    code, out, err = run("quarantine", "discard", file, SES)
    assert (code, out, err) == (BAD_INPUT, "", f"Error: session {SES} is in no quarantine\n")
    assert state_of(tmp_path) == before
    quarantined(file)
    assert run("quarantine", "discard", file, SES)[0] == CLEAN
    assert types(file)[-1] == "session.deleted"
    assert run("quarantine", "list", file)[1].count("\n") == 1
