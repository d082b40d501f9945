"""The report tells what happened, lays the nearest run that held beside it, and is safe to open."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

from sim.__main__ import main
from sim.record import Record
from sim.report import nearest_that_held, page, tell, trace_events
from sim.report.page import inert, parting
from sim.run import judge
from sim.saved import tape_of
from sim.scenario import TapeSpec, load_scenario
from sim.tape import Tape
from sim.verdict import Violation
from tests.sim.report_samples import HOSTILE, WORLD, none_interrupted, pages, scenario
from tests.sim.test_machine import AT_SYNC, scenario_of

ROOT = Path(__file__).parents[2]


# --- the story ---------------------------------------------------------------------------------------


def test_leases_go_from_hand_to_hand() -> None:
    """A stalled holder's bar ends where the take-over begins, and the stall is a band on its node."""
    story, _ = tell(load_scenario(ROOT / "scenarios" / "stall_past_lease.toml"), Tape.fifo())
    first, second = story.leases
    assert (first.node, first.taken_over, second.node, second.taken_over) == ("a", True, "b", False)
    assert (first.until_ms, first.until_index) == (second.ms, second.index)
    assert first.execution != second.execution
    assert [changes["phase"] for _, _, changes in first.changes if "phase" in changes][:1] == ["ready"]
    (band,) = story.bands
    assert (band.node, band.kind, band.ms, band.until_ms) == ("a", "paused", 350.0, 90_350.0)


def test_a_node_without_power_is_dead_until_it_starts_again() -> None:
    """The band of a power cut ends with the next incarnation, nine seconds later."""
    story, _ = tell(scenario(), Tape.fifo())
    (band,) = story.bands
    assert (band.node, band.kind, band.ms, band.until_ms) == ("a", "dead", 1_000.0, 10_000.0)


def test_rulers_show_each_nodes_own_clock() -> None:
    """At each stop a node's reading is that of its clock: true time plus its error."""
    story, _ = tell(scenario(), Tape.fifo())
    assert story.clocks["a"] == [int(ms) - 1500 for ms in story.stops]
    assert story.clocks["b"] == [int(ms) for ms in story.stops]


def test_every_commit_request_chunk_and_notification_is_a_mark() -> None:
    """Nothing that the run committed, opened, streamed or told is missing, and each is in its lane."""
    counts: dict[str, int] = {}

    def count(record: Record) -> list[Violation]:
        counts["commit"] = len(record.commits)
        counts["open"] = len(record.run.ledger.opened)
        counts["tool"] = len(record.run.ledger.tools)
        counts["told"] = sum(entry.kind == "listener" for entry in record.run.trace.entries)
        return []

    story, _ = tell(scenario(), Tape.fifo(), checks=(count,))
    kinds = [mark.kind for mark in story.marks]
    assert {kind: kinds.count(kind) for kind in counts} == counts
    assert min(counts.values()) > 0
    assert kinds.count("chunk") >= 3
    lanes = {
        mark.kind: mark.lane for mark in story.marks if mark.kind not in ("told", "fault", "node", "bell")
    }
    assert lanes == {
        "action": "clients", "commit": "store", "open": "provider", "chunk": "provider", "said": "provider",
        "tool": "a",
    }  # fmt: skip
    assert [mark.ms for mark in story.marks] == sorted(mark.ms for mark in story.marks)


def test_what_befell_the_machine_is_in_the_stores_lane() -> None:
    """Its faults are one mark each, not one for each node, and what the disk did stands beside them."""
    faults = (
        'as = "worn"; kind = "disk_error"; operation = "sync"; operations = 2; at_s = 0.1',
        f'as = "dark"; kind = "power_loss"; when = {AT_SYNC}; for_s = 1.0',
        'as = "unmet"; kind = "disk_full"; at_s = 50.0; for_s = 0.1',
    )
    story, _ = tell(scenario_of(*faults), Tape.fifo())
    marks = [(mark.lane, mark.kind, mark.label.partition(";")[0]) for mark in story.marks]
    assert [mark for mark in marks if mark[1] in ("fault", "disk")] == [
        ("store", "fault", "disk_error"),
        ("store", "fault", "power_loss"),
        ("store", "disk", "power is back"),
        ("store", "disk", "a sync failed"),
        ("store", "disk", "a sync failed"),
        ("store", "fault", "disk_full"),
    ]
    assert [mark for mark in marks if mark[0] == "clients"] == [("clients", "action", "send-1")]


def test_the_broken_moment_points_at_its_entry() -> None:
    """A violation at a commit is at that commit's time and trace entry."""
    story, _ = tell(scenario(), Tape.fifo(), checks=(none_interrupted,))
    (broken,) = story.broken
    (mark,) = (
        mark
        for mark in story.marks
        if mark.kind == "commit" and "step.interrupted" in json.dumps(mark.detail)
    )
    assert (broken.ms, broken.index, story.verdict) == (mark.ms, mark.index, "broken")


def test_long_details_and_long_runs_are_cut_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes a page slow is left out, with the number of what is missing."""
    whole, _ = tell(scenario(), Tape.fifo())
    monkeypatch.setattr("sim.report.story.MARKS_MAX", 10)
    monkeypatch.setattr("sim.report.detail.TEXT_MAX", 50)
    story, _ = tell(scenario(), Tape.fifo())
    assert (len(story.marks), story.marks_left_out) == (10, len(whole.marks) - 10)
    cut = [mark.detail for mark in story.marks if "shortened" in (mark.detail or {})]
    assert cut
    assert all(len(detail["shortened"]) == 50 < detail["characters"] for detail in cut)


# --- the nearest run that held -----------------------------------------------------------------------


def test_the_nearest_run_lacks_only_the_fault() -> None:
    """Without its power cut the world holds, and the two runs are alike up to the cut."""
    one, checks = scenario(), (none_interrupted,)
    story, result = tell(one, Tape.fifo(), checks)
    near = nearest_that_held(one, result.violations, checks)
    assert near is not None
    assert (near.change, near.scenario) == ("without the fault cut", attrs.evolve(one, faults=()))
    beside, _ = tell(near.scenario, near.tape(), checks)
    place = parting(story, beside)
    assert place is not None
    assert [(one.kind, one.label, one.ms) for one in story.marks[:place]] == [
        (one.kind, one.label, one.ms) for one in beside.marks[:place]
    ]
    assert (story.marks[place].kind, story.marks[place].label) == ("fault", "power_cut")


def test_one_draw_is_nearer_than_a_whole_fault() -> None:
    """Where one draw makes the difference, that draw alone is changed."""
    tape = TapeSpec(schedule=(0, 1, 0, 1))
    one = attrs.evolve(scenario(), tape=tape)

    def second_draw(record: Record) -> list[Violation]:
        drawn = record.run.tape.draws["schedule"]
        return [Violation(rule="X2", sentence="it was drawn")] if drawn[1].value else []

    result = judge(one, tape_of(one), checks=(second_draw,))
    near = nearest_that_held(one, result.violations, checks=(second_draw,))
    assert near is not None
    assert near.change == "draw 1 of schedule is 0 instead of 1"
    assert near.scenario.tape == TapeSpec(schedule=(0, 0, 0, 1))


def test_a_run_that_misses_an_expectation_isnt_near() -> None:
    """Where an expectation broke, the others still count; only what speaks of the missing part is dropped."""
    never = '[[expect]]\nevents = "s"\ntype = "step.ended"\ncount = 99\n'
    one = scenario(WORLD + never)
    result = judge(one, Tape.fifo())
    assert [violation.rule for violation in result.violations] == ["expect"]
    assert nearest_that_held(one, result.violations) is None


def test_no_run_is_called_near_if_none_held() -> None:
    """What always breaks has nothing beside it, and the search for it is bounded."""
    runs = 0

    def always(record: Record) -> list[Violation]:
        nonlocal runs
        runs += 1
        return [Violation(rule="X3", sentence="always")]

    assert nearest_that_held(scenario(), [], checks=(always,), runs_max=3) is None
    assert runs == 3


# --- the page ----------------------------------------------------------------------------------------


def data_of(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_no_text_of_a_run_is_markup() -> None:
    """Whatever a session holds, the page has its own two script elements and no other, and loses nothing."""
    story, beside, text = pages()
    assert (text.count("<script"), text.count("</script")) == (2, 2)
    assert "<img" not in text
    assert HOSTILE not in text
    data = data_of(text)
    assert data["runs"] == json.loads(json.dumps([story.as_json(), beside.as_json()]))
    assert data["runs"][0]["broken"][0]["sentence"] == HOSTILE
    assert inert("<!--</script>&") == '"\\u003c!--\\u003c/script\\u003e\\u0026"'


def test_a_hostile_name_stays_out_of_the_title() -> None:
    """The one text that goes into markup, the title, is escaped."""
    story = attrs.evolve(tell(scenario(), Tape.fifo())[0], scenario="</title><img>")
    assert html.escape("</title><img>") in page(story)
    assert "<img" not in page(story)


def test_the_page_asks_the_network_for_nothing() -> None:
    """Its policy allows only its own style and script, by their hashes, and it names no address."""
    text = pages()[2]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; ")
    for element in ("style", "script"):
        body = re.search(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        assert body is not None
        digest = base64.b64encode(hashlib.sha256(body[1].encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy[1]
    assert set(re.findall(r"https?://[^\"'\s]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(src|href|@import)\s*=|url\((?!#)", text.replace("src=x", ""))


# --- the trace for Perfetto --------------------------------------------------------------------------

NEEDED = {"M": {"args"}, "X": {"ts", "dur", "cat"}, "i": {"ts", "s", "cat"}, "C": {"ts", "args"}}


def test_the_perfetto_trace_has_the_shape_of_the_format() -> None:
    """Every event is one of four phases with the fields that phase needs, on a process that has a name."""
    story, _ = tell(scenario(), Tape.fifo(), checks=(none_interrupted,))
    whole = json.loads(json.dumps(trace_events(story)))
    events = whole["traceEvents"]
    named = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert list(named.values()) == ["clients", "node a", "node b", "store", "provider"]
    for event in events:
        assert {"ph", "name", "pid", "tid"} <= event.keys()
        assert NEEDED[event["ph"]] <= event.keys()
        assert event["pid"] in named
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
        assert isinstance(event["name"], str)
        assert event.get("s", "t") in ("g", "p", "t")
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
    counts = {phase: sum(event["ph"] == phase for event in events) for phase in NEEDED}
    assert counts["X"] == len(story.leases) + len(story.bands)
    assert counts["i"] == len(story.marks) + len(story.broken)
    assert counts["C"] == 2 * len(story.stops)


def test_perfetto_times_are_microseconds() -> None:
    """A power cut at one second of true time is at a million microseconds."""
    events = trace_events(tell(scenario(), Tape.fifo())[0])["traceEvents"]
    (cut,) = (event for event in events if event["name"] == "fault: power_cut")
    assert cut["ts"] == 1_000_000


# --- the command -------------------------------------------------------------------------------------


def test_the_command_writes_both_files(tmp_path: Path) -> None:
    """Exit status 0 for a world that holds; the page has its run, the trace its events."""
    path, out, trace = tmp_path / "w.toml", tmp_path / "w.html", tmp_path / "w.json"
    path.write_text(WORLD, encoding="utf-8")
    done = CliRunner().invoke(main, ["report", str(path), "-o", str(out), "--perfetto", str(trace)])
    assert (done.exit_code, done.output) == (0, f"held; wrote {out}\n")
    assert [run["verdict"] for run in data_of(out.read_text(encoding="utf-8"))["runs"]] == ["held"]
    assert json.loads(trace.read_text())["otherData"]["scenario"] == "hostile"


def test_the_command_lays_a_run_that_held_beside_one_that_broke(tmp_path: Path) -> None:
    """Exit status 1, what broke, and two runs on the page."""
    path, out = tmp_path / "w.toml", tmp_path / "w.html"
    path.write_text(WORLD + '[[expect]]\nevents = "s"\ntype = "step.interrupted"\ncount = 0\n')
    done = CliRunner().invoke(main, ["report", str(path), "-o", str(out)])
    assert done.exit_code == 1
    assert "beside it: without the fault cut" in done.output
    data = data_of(out.read_text(encoding="utf-8"))
    assert ([run["verdict"] for run in data["runs"]], data["change"]) == (
        ["broken", "held"],
        "without the fault cut",
    )


def test_the_command_refuses_bad_files(tmp_path: Path) -> None:
    """Exit status 2, with the reason, for a scenario that can't be read and a page that can't be written."""
    missing = CliRunner().invoke(main, ["report", str(tmp_path / "none.toml"), "-o", str(tmp_path / "x")])
    assert (missing.exit_code, "can't be read" in missing.output) == (2, True)
    path = tmp_path / "w.toml"
    path.write_text(WORLD)
    unwritable = CliRunner().invoke(main, ["report", str(path), "-o", str(tmp_path / "none" / "x.html")])
    assert (unwritable.exit_code, "can't be written" in unwritable.output) == (2, True)
