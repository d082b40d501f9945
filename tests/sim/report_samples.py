"""A world with hostile texts, a rule that its power cut breaks, and their page."""

from __future__ import annotations

from collections.abc import Iterator

from sim.record import Record
from sim.report import Story, nearest_that_held, page, tell
from sim.scenario import Scenario, parse_scenario
from sim.tape import Tape
from sim.verdict import Violation

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><!-- & \u2028"

WORLD = f"""
proves = '''{HOSTILE}'''
name = "hostile"
[config]
lease_ms = 30000
[[nodes]]
name = "a"
[nodes.clock]
offset_ms = -1500
[[nodes]]
name = "b"
[[sessions]]
name = "s"
title = '''{HOSTILE}'''
replies = [
  [ {{ text = '''{HOSTILE}''', chunks = 3, every_ms = 100 }},
    {{ call = "c1", tool = "look", input = {{ q = '''{HOSTILE}''' }} }}, {{ finish = "tool_calls" }} ],
  [ {{ text = "Done" }}, {{ finish = "stop" }} ],
]
[[tools]]
name = "look"
output = '''{HOSTILE}'''
takes_ms = 2000
[[actions]]
as = "hello"
do = "send"
node = "a"
session = "s"
text = '''{HOSTILE}'''
at_s = 0.0
[[faults]]
as = "cut"
kind = "power_cut"
node = "a"
at_s = 1.0
for_s = 9.0
"""


def scenario(text: str = WORLD) -> Scenario:
    found, problems = parse_scenario(text, "hostile.toml")
    assert found is not None, problems
    return found


def none_interrupted(record: Record) -> Iterator[Violation]:
    """Not an invariant: a world without faults keeps it."""
    for commit in record.commits:
        if any(row.type == "step.interrupted" for row in commit.events):
            yield Violation(
                rule="X1",
                sentence=HOSTILE,
                node=commit.node,
                true_ms=commit.true_ms,
                around=record.around(commit.entry),
            )


def pages() -> tuple[Story, Story, str]:
    """The story of the broken run, the one beside it, and their page."""
    one, checks = scenario(), (none_interrupted,)
    story, result = tell(one, Tape.fifo(), checks)
    near = nearest_that_held(one, result.violations, checks)
    assert near is not None
    beside, _ = tell(near.scenario, near.tape(), checks)
    return story, beside, page(story, beside, near)
