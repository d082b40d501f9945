"""Simulated tools: what they return, start by start, what they ask their engine for, and what is noted."""

from __future__ import annotations

import json

import pytest

from engine import events as ev
from sim.record import Record
from sim.scenario import Scenario, Tool, parse_scenario
from sim.tape import Tape
from sim.world import World

WORLD = """
proves = "A tool is called."
[[nodes]]
name = "a"
[[sessions]]
name = "s"
replies = [
  [ { call = "c1", tool = "t" }, { finish = "tool_calls" } ],
  [ { call = "c1", tool = "t" }, { finish = "tool_calls" } ],
  [ { call = "c1", tool = "t" }, { finish = "tool_calls" } ],
  [ { text = "Done" }, { finish = "stop" } ],
]
[[sessions]]
name = "other"
[[actions]]
do = "send"
node = "a"
session = "s"
text = "Go"
at_s = 0.0
[[tools]]
name = "t"
"""


def read(tool: str) -> tuple[Scenario | None, list[str]]:
    """The world with these keys of its tool, and the problems it has."""
    scenario, problems = parse_scenario(WORLD + tool, "one.toml")
    return scenario, [str(problem) for problem in problems]


def outcomes(tool: str) -> list[object]:
    """How the calls of that tool ended: the outputs, or the error's type and how sure the outcome is."""
    scenario, problems = read(tool)
    assert scenario is not None, problems
    run = World(scenario, Tape.fifo()).run()
    try:
        found: list[object] = []
        for item in Record(run).happened["ses_s"]:
            if isinstance(item.event, ev.ToolSucceeded):
                found.append(item.event.output)
            elif isinstance(item.event, ev.ToolFailed):
                found.append((item.event.error.type, item.event.outcome))
        return found
    finally:
        run.close()


def test_results_are_given_start_by_start_and_the_last_one_again() -> None:
    """The first call gets the first result, the second the second, and whoever comes later the last."""
    assert outcomes('results = ["one", { rows = [2] }]') == ["one", {"rows": [2]}, {"rows": [2]}]
    assert Tool(name="t", results=("one",)).value(7) == "one"


@pytest.mark.parametrize("kind", ["object", "nan", "number", "deep"])
def test_what_no_log_can_hold_fails_the_call_and_not_the_engine(kind: str) -> None:
    """Each unfit result is a failed call whose effect is uncertain."""
    assert outcomes(f'unfit = "{kind}"') == [("invalid-output", "unknown")] * 3


def test_an_error_of_the_tools_own_is_uncertain_and_one_for_the_model_is_not() -> None:
    """A crash may have had its effect; a failure that the tool reports is known."""
    assert outcomes('crashes = "a bug"') == [("tool-defect", "unknown")] * 3
    assert outcomes('fails = "no rows"') == [("failed", "failed")] * 3


def test_a_tool_that_asks_its_engine_returns_as_ever() -> None:
    """What was asked for is done before the tool returns, and a refusal is an error for the model to see."""
    assert outcomes('asks = "send"\nsession = "other"\noutput = "sent"') == ["sent"] * 3
    assert outcomes('asks = "resume"\noutput = "resumed"') == ["resumed"] * 3
    deleted = outcomes('asks = "delete"\nsession = "other"\noutput = "gone"')
    assert deleted == ["gone"] * 3
    assert outcomes('asks = "interrupt"\noutput = "stopped"') == [("interrupted", "unknown")]


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ('output = "x"\nresults = ["y"]', "output and results don't go together"),
        ('results = ["y"]\nunfit = "nan"', "results and unfit don't go together"),
        ("results = []", "is empty"),
        ('session = "s"', "a tool that asks nothing has no session"),
        ('asks = "send"\nsession = "nobody"', 'unknown session "nobody"'),
        ('unfit = "nothing"', "must be one of"),
    ],
)
def test_keys_that_contradict_each_other_are_told(tool: str, says: str) -> None:
    """A tool says one thing, about sessions that are there."""
    _, problems = read(tool)
    assert len(problems) == 1
    assert says in problems[0]


def test_each_start_is_noted_with_its_call() -> None:
    """The ledger holds every start, by step and call, and the trace its input."""
    scenario, _ = read('output = "x"')
    assert scenario is not None
    run = World(scenario, Tape.fifo()).run()
    try:
        starts = run.ledger.tools
        assert [(one.tool, one.call_id, one.session_id) for one in starts] == [("t", "c1", "ses_s")] * 3
        assert len({one.message_id for one in starts}) == 3
        traced = [entry.fields["value"] for entry in run.trace.entries if entry.kind == "tool"]
        assert json.dumps(traced) == json.dumps([{}] * 3)
    finally:
        run.close()
