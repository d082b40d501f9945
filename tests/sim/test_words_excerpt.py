"""The entries around a breach are few, in order, and about the session and the nodes concerned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.record import Record
from sim.saved import tape_of
from sim.scenario import load_scenario, parse_scenario
from sim.tape import Tape
from sim.trace import Entry
from sim.words.excerpt import AFTER, BEFORE, CAUSES, excerpt
from sim.world import World
from tests.sim.test_machine import AT_SYNC, run_with

ROOT = Path(__file__).parents[2]

BUSY = """
proves = "Two sessions of one node, and another node that stalls."
name = "busy"
[[nodes]]
name = "a"
[[nodes]]
name = "b"
[[sessions]]
name = "s"
replies = [[{ text = "One", chunks = 9, every_ms = 100 }, { finish = "stop" }]]
[[sessions]]
name = "t"
[[actions]]
do = "send"
node = "a"
session = "s"
text = "Hello"
at_s = 0.0
[[actions]]
do = "send"
node = "a"
session = "t"
text = "Hello"
at_s = 0.3
[[faults]]
kind = "stall"
node = "b"
at_s = 0.2
for_s = 0.2
"""


@pytest.fixture(scope="module")
def record() -> Iterator[Record]:
    scenario, problems = parse_scenario(BUSY, "busy.toml")
    assert scenario is not None, problems
    run = World(scenario, Tape.fifo()).run()
    yield Record(run)
    run.close()


def commit_of(record: Record, session_id: str, type_: str) -> int:
    return next(item.commit.entry for item in record.happened[session_id] if item.row.type == type_)


def sessions(entries: list[Entry]) -> set[str]:
    rows = [row for one in entries for row in (*one.fields.get("events", ()), *one.fields.get("claims", ()))]
    return {row.session_id for row in rows}


def test_only_the_session_and_the_nodes_are_shown(record: Record) -> None:
    """Another session's writes and another node's faults are left out; without a session all are let in."""
    at = commit_of(record, "ses_s", "text.ended")
    mine = excerpt(record, at, "ses_s", ["a"])
    assert sessions(mine) == {"ses_s"}
    assert [one for one in mine if one.node.startswith("b")] == []
    assert "b" in [one.node for one in excerpt(record, at, "ses_s", ["a", "b"])]
    assert sessions(excerpt(record, at, None, [])) > {"ses_t"}


def test_the_entry_itself_is_shown_among_few_in_order(record: Record) -> None:
    """It is there with what came just before and after, whichever entry it is; chunks don't crowd it."""
    for commit in record.commits:
        for row in commit.events:
            shown = excerpt(record, commit.entry, row.session_id, ["a"])
            indexes = [one.index for one in shown]
            assert commit.entry in indexes
            assert indexes == sorted(set(indexes))
            assert len(shown) <= CAUSES + BEFORE + 1 + AFTER
            assert [one.label for one in shown if one.kind == "provider"] in ([], ["open"])


def test_who_took_the_session_is_shown_from_afar() -> None:
    """A take-over and the pause before it stay in sight, however much was written since."""
    scenario = load_scenario(ROOT / "scenarios" / "take_over_tool_called.toml")
    run = World(scenario, tape_of(scenario)).run()
    try:
        record = Record(run)
        last = record.happened["ses_s"][-1].commit.entry
        shown = excerpt(record, last, "ses_s", list(run.nodes))
        taken = [
            one.index
            for one in shown
            for seen in one.fields.get("claims", ())
            if seen.before and seen.after and seen.before.execution_id != seen.after.execution_id
        ]
        assert taken != []
        assert [one.label for one in shown if one.kind == "node"][:1] == ["paused"]
    finally:
        run.close()


def test_what_befell_the_machine_is_shown_once_and_what_it_lost() -> None:
    """Its fault strikes each node, but is told once; what the disk lost stays in sight from afar."""
    run = run_with(f'as = "dark"; kind = "power_loss"; unsynced = "lost"; when = {AT_SYNC}; for_s = 1.0')
    record = Record(run)
    last = record.happened["ses_s"][-1].commit.entry
    shown = excerpt(record, last, "ses_s", list(run.nodes))
    assert [one.label for one in shown if one.kind == "fault"] in ([], ["power_loss"])
    assert next(one.label for one in shown if one.kind == "disk").startswith("power is back; lost #")
    loss = next(one.index for one in run.trace.entries if one.kind == "disk")
    early = excerpt(record, loss, "ses_s", list(run.nodes))
    assert [one.label for one in early if one.kind == "fault"] == ["power_loss"]
    assert [one.index for one in early if one.kind == "disk"] == [loss]
