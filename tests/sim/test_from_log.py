"""A session's log becomes a scenario in which everything goes as it went, without what was redacted."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import attrs
import pytest
import trio
from click.testing import CliRunner

from engine import demo
from engine import events as ev
from engine.codec import decode_row
from engine.events import Event, Stored
from engine.store import open_readonly
from engine.system import real_system
from sim.__main__ import main
from sim.from_log import Made, Redaction, scenario_from_log
from sim.from_log.replies import steps_of
from sim.matrix import run_matrix
from sim.run import run_scenario
from sim.saved import tape_of
from sim.scenario import Scenario, check_scenario, load_scenario, parse_scenario
from sim.world import World

ROOT = Path(__file__).parents[2]
WHOLE = 1_000_000

RICH = """
proves = "A session in which providers and tools do most of what they can."
name = "rich"
[[nodes]]
name = "a"
[[sessions]]
name = "s"
system = "Be brief. SECRET-1"
agent = "SECRET-2"
title = "SECRET-3"
replies = [
  [ { error = "rate_limit", message = "slow down SECRET-4", retry_after_s = 7.0 } ],
  [ { reasoning = "Hm SECRET-5", delay_ms = 50 },
    { text = "Let me look SECRET-6", chunks = 3, every_ms = 100, delay_ms = 20 },
    { call = "SECRET-7", tool = "look", input = { "SECRET-8" = "SECRET-9", n = [1, 2.5, true] } },
    { call = "c2", tool = "look2", input = { q = "y" }, streamed = true },
    { call = "c3", tool = "wrong", input = {} },
    { call = "c4", tool = "bug", input = {} },
    { call = "c5", tool = "nobody", input = {} },
    { call = "c6", tool = "look", input_text = "{oops", streamed = true },
    { call = "c7", tool = "search", input_text = '{"a": null}', hosted = true },
    { result = "c7", output = { found = ["SECRET-10"] } },
    { call = "c8", tool = "search", input = {}, hosted = true },
    { result = "c8", failed = "SECRET-11" },
    { finish = "SECRET-12", input_tokens = 11, output_tokens = 7, reasoning_tokens = 3, cached_tokens = 1 } ],
  [ { event = "text_start", id = "x" }, { event = "text_chunk", id = "x", text = "one" },
    { event = "reasoning_start", id = "y" }, { event = "reasoning_chunk", id = "y", text = "two" },
    { event = "text_end", id = "x" }, { event = "reasoning_end", id = "y" }, { finish = "stop" } ],
  [ { text = "second" }, { finish = "stop" } ],
  [ { text = "cut" }, { finish = "content_filter" } ],
]
[[tools]]
name = "look"
output = { rows = [1, "SECRET-13"] }
takes_ms = 300
[[tools]]
name = "look2"
output = "other"
takes_ms = 900
[[tools]]
name = "wrong"
fails = "SECRET-14"
[[tools]]
name = "bug"
crashes = "a bug"
takes_ms = 10
[[actions]]
do = "send"
node = "a"
session = "s"
text = "What is x? SECRET-15"
input = "SECRET-16"
at_s = 0.0
[[actions]]
as = "later"
do = "send"
node = "a"
session = "s"
text = "And y?"
delivery = "queue"
when = { event = "execution.succeeded" }
[[actions]]
do = "send"
node = "a"
session = "s"
text = "And z?"
when = { event = "execution.succeeded", nth = 2 }
"""
PARKED = """
proves = "An interrupt meets input that nobody has claimed."
[[nodes]]
name = "a"
[[nodes]]
name = "b"
sweep = false
[[sessions]]
name = "s"
[[actions]]
do = "send"
node = "a"
session = "s"
text = "Hello"
at_s = 0.0
[[actions]]
do = "interrupt"
node = "b"
session = "s"
at_s = 1.0
[[faults]]
kind = "power_cut"
node = "a"
when = { event = "input.admitted" }
"""
SECRET = "SECRET-[0-9]+"


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    """The engine logs the tools that raise, as it should."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def scenario(text: str) -> Scenario:
    found, problems = parse_scenario(text, "rich.toml")
    assert found is not None, problems
    return found


def log_of(one: Scenario) -> list[Stored]:
    """What a run of the scenario logged in its first session."""
    run = World(one, tape_of(one)).run()
    try:
        rows = run.database.reader().events(f"ses_{one.sessions[0].name}", -1, WHOLE)
        return [decode_row(row) for row in rows]
    finally:
        run.close()


def made(log: Sequence[Stored], *patterns: str) -> Made:
    return scenario_from_log(log, "made", Redaction([re.compile(pattern) for pattern in patterns]))


def said(stored: Stored) -> dict[str, Any]:
    """What an event says, without ids and names, which differ in every run."""
    event: Event = stored.event
    data = attrs.asdict(event)
    for key in (
        *("session_id", "assistant_message_id", "input_id", "call_id", "owner_id", "previous_execution_id"),
        *("name", "at"),
    ):
        data.pop(key, None)
    if isinstance(event, ev.ToolFailed) and event.error.type == "unknown-tool":
        data["error"].pop("message")  # names the tool
    return {"type": event.type, **data}


# --- the same course ---------------------------------------------------------------------------------


def test_everything_is_said_as_it_was() -> None:
    """Texts, calls, hosted results, tool outputs, failures, usage and waits come back, event for event."""
    log = log_of(scenario(RICH))
    one = made(log)
    assert (one.same_course, one.result.verdict) == (True, "held")
    again = log_of(one.scenario)
    assert [said(stored) for stored in again] == [said(stored) for stored in log]
    steps = [stored.created for stored in log if stored.type == "step.started"]
    replayed = [stored.created for stored in again if stored.type == "step.started"]
    assert steps[1] - steps[0] >= 7_000
    assert replayed == steps
    assert one.notes == []


COURSES = (
    "interrupt_step_started_after_commit",
    "interrupt_text_started_notify",
    "interrupt_parks_and_resume_runs",
    "interrupt_during_backoff",
    "power_cut_unknown_with_text_open",
    "power_cut_unknown_with_tool_running",
    "power_cuts_one_after_another",
    "shutdown_waits_for_the_step",
    "cancel_with_tool_running",
    "hosted_calls",
    "input_cancelled_in_time",
    "queue_waits_for_its_turn",
    "steer_joins_at_the_boundary",
    "take_over_step_started",
    "tools_in_parallel",
    "delete_while_running",
)


@pytest.mark.parametrize("name", COURSES)
def test_the_course_of_a_scenario_comes_back(name: str) -> None:
    """Interrupts, crashes, shutdowns and inputs of a log strike again where they struck."""
    log = log_of(load_scenario(ROOT / "scenarios" / f"{name}.toml"))
    one = made(log)
    assert (one.same_course, one.notes) == (True, [])
    assert [str(violation) for violation in one.result.violations] == []
    assert run_scenario(scenario(one.text)).violations == []


def test_an_interrupt_that_only_parked_comes_back() -> None:
    """What an interrupt left in the log without any execution is an interrupt again."""
    log = log_of(scenario(PARKED))
    assert [stored.type for stored in log] == ["session.created", "input.admitted", "input.parked"]
    one = made(log)
    assert [action.do for action in one.scenario.actions] == ["send", "interrupt"]
    assert one.result.verdict == "held"


def test_a_shutdown_is_no_crash() -> None:
    """The next holder of a claim that was handed over found it free: nobody lost power."""
    shut = made(log_of(load_scenario(ROOT / "scenarios" / "shutdown_waits_for_the_step.toml"))).scenario
    cut = made(log_of(load_scenario(ROOT / "scenarios" / "power_cut_unknown_with_text_open.toml"))).scenario
    assert ([fault.kind for fault in shut.faults], [fault.kind for fault in cut.faults]) == (
        [],
        ["power_cut"],
    )
    assert [action.do for action in shut.actions] == ["send", "shutdown", "start"]


def test_a_tool_that_answered_differently_is_two_tools() -> None:
    """A simulated tool always says the same: each answer has a tool of its own."""
    log = log_of(scenario(RICH))
    log = [
        attrs.evolve(stored, event=attrs.evolve(stored.event, name="look"))
        if getattr(stored.event, "name", None) == "look2"
        else stored
        for stored in log
    ]
    one = made(log)
    assert [tool.name for tool in one.scenario.tools if tool.name.startswith("look")] == ["look", "look_2"]
    assert [said(stored) for stored in log_of(one.scenario)] == [said(stored) for stored in log]


def test_another_course_is_told_and_not_expected() -> None:
    """The engine's configuration isn't in the log: where it mattered, that is said, and nothing is proved."""
    one = made(log_of(load_scenario(ROOT / "scenarios" / "attempts_exhausted.toml")))
    assert not one.same_course
    assert one.scenario.expect == ()
    assert one.notes == ["from event 13 on it goes another way: retry.scheduled instead of execution.failed"]
    assert one.result.verdict == "held"


def test_any_beginning_of_a_log_makes_a_scenario() -> None:
    """A session that is under way can be taken over at any event: the result is valid, and holds."""
    log = log_of(scenario(RICH))
    for length in range(1, len(log), 3):
        one = made(log[:length])
        assert parse_scenario(one.text, "made.toml")[1] == []
        assert [str(violation) for violation in one.result.violations] == []


def test_a_step_that_never_reached_its_provider_takes_no_reply() -> None:
    """One reply answers one request: what was cut off before its request has none."""
    log = log_of(load_scenario(ROOT / "scenarios" / "take_over_step_started.toml"))
    started = [stored for stored in log if stored.type == "step.started"]
    assert len(steps_of(log)) == len(started) - 1


def test_a_log_that_has_no_beginning_is_refused() -> None:
    """Without `session.created` nothing is known of the session."""
    with pytest.raises(ValueError, match=r"session\.created"):
        made(log_of(scenario(RICH))[1:])


# --- redaction ---------------------------------------------------------------------------------------


def test_nothing_that_matches_is_left() -> None:
    """Each secret, in whichever text, key, name, id or error it was, is gone, and the course is the same."""
    log = log_of(scenario(RICH))
    plain, one = made(log), made(log, SECRET)
    kept = set(re.findall(SECRET, plain.text))
    assert kept == {f"SECRET-{number}" for number in range(1, 17)} - {"SECRET-16"}
    assert re.findall("SECRET", one.text) == []
    assert (one.same_course, one.result.verdict) == (True, "held")


def test_redacted_names_stay_apart() -> None:
    """Two tools whose names become one are still two, and so are two calls."""
    redaction = Redaction([re.compile("x+")])
    names = [redaction.name("tool", name) for name in ("x", "xx", "x", "y", "[redacted]", "…")]
    assert names == ["redacted_", "redacted__2", "redacted_", "y", "redacted__3", "tool"]
    assert redaction.name("call", "x") == "redacted_"


def test_redaction_reaches_every_corner_of_a_value() -> None:
    """Keys, lists and nested values are redacted; a null inside, which TOML lacks, becomes text."""
    redaction = Redaction([re.compile("a")])
    value = {"a": [1, "bab", {"c": None, "d": True}], "n": 2.5}
    assert redaction.json(value) == {
        "[redacted]": [1, "b[redacted]b", {"c": "null", "d": True}],
        "n": 2.5,
    }
    assert (redaction.json(None), redaction.nulls, redaction.hits) == (None, 1, 2)


# --- the command -------------------------------------------------------------------------------------


def file_of(one: Scenario, path: Path) -> None:
    """A database file with what a run of the scenario left."""
    run = World(one, tape_of(one)).run()
    try:
        with (
            apsw.Connection(str(path)) as target,
            target.backup("main", run.database.connection, "main") as copy,
        ):
            copy.step()
    finally:
        run.close()


def test_a_real_database_becomes_a_scenario(tmp_path: Path) -> None:
    """The demonstration's own file, made by the real engine, replays; the matrix can interrupt it."""
    database, out = tmp_path / "demo.db", tmp_path / "my scene.toml"

    async def play() -> None:
        await demo.play(str(database), lambda text: None, real_system(), pace=0)

    trio.run(play)
    with open_readonly(database) as store:
        (row,) = store.read(lambda tx: tx.sessions("", 10))
    done = CliRunner().invoke(
        main, ["from-log", str(database), row.session_id, "-o", str(out), "--redact", "(?i)brest"]
    )
    assert (done.exit_code, done.output.splitlines()[-1].startswith("held, as it went; ")) == (0, True)
    assert check_scenario(out) == []
    one = load_scenario(out)
    assert "brest" not in out.read_text().lower()
    assert run_scenario(one, check_determinism=True).violations == []
    cells = run_matrix(one, lambda done, of: done < 8).cells
    assert [cell for cell in cells if cell.violations] == []


def test_the_command_reads_any_session_of_a_file(tmp_path: Path) -> None:
    """The named session is written, valid, and holds."""
    database, out = tmp_path / "rich.db", tmp_path / "rich.toml"
    file_of(scenario(RICH), database)
    done = CliRunner().invoke(main, ["from-log", str(database), "ses_s", "-o", str(out)])
    assert (done.exit_code, done.output) == (0, f"held, as it went; 0 redactions; wrote {out}\n")
    assert CliRunner().invoke(main, ["run", str(out)]).exit_code == 0


def test_the_command_refuses_what_it_cant_read(tmp_path: Path) -> None:
    """Exit status 2, and why: an unknown session, a foreign file, a broken pattern, a missing folder."""
    database, out = tmp_path / "rich.db", tmp_path / "rich.toml"
    file_of(scenario(RICH), database)
    (tmp_path / "text").write_text("not a database, but long enough to be looked at as one")

    def refused(*arguments: str) -> str:
        done = CliRunner().invoke(main, ["from-log", *arguments])
        assert done.exit_code == 2
        assert not out.exists()
        return done.output

    said = refused(str(database), "ses_none", "-o", str(out))
    assert "there is no session ses_none in this database; it has ses_s" in said
    assert "text" in refused(str(tmp_path / "text"), "ses_s", "-o", str(out))
    assert "--redact (" in refused(str(database), "ses_s", "-o", str(out), "--redact", "(")
    assert "can't be written" in refused(str(database), "ses_s", "-o", str(tmp_path / "none" / "x.toml"))
