"""A failing scenario loses what its failure doesn't need, and the search can be stopped."""

from __future__ import annotations

import pytest

from sim.scenario import Scenario, TapeSpec, parse_scenario
from sim.shrink.search import shrink

WORLD = """
proves = "Nothing."
name = "large"
[[nodes]]
name = "a"
[[nodes]]
name = "b"
[[sessions]]
name = "s"
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
node = "b"
session = "t"
text = "Hello"
at_s = 0.0
[[faults]]
kind = "stall"
node = "b"
at_s = 1.0
for_s = 1.0
[tape]
schedule = [0, 2, 0, 0, 1, 0, 3]
"""


def large() -> Scenario:
    found, problems = parse_scenario(WORLD, "large.toml")
    assert found is not None, problems
    return found


def fails(scenario: Scenario) -> bool:
    """As if the failure needed a client of `a` and the second draw."""
    draws = scenario.tape.schedule if scenario.tape else ()
    return any(act.node == "a" for act in scenario.actions) and len(draws) > 1 and draws[1] == 2


def test_what_isnt_needed_goes() -> None:
    """Left are one client, its node and session, and the one draw; what remains still fails."""
    small, runs = shrink(large(), fails)
    assert [len(part) for part in (small.nodes, small.sessions, small.actions, small.faults)] == [1, 1, 1, 0]
    assert small.tape == TapeSpec(schedule=(0, 2))
    assert fails(small)
    assert runs > 4


@pytest.mark.parametrize("enough", range(12))
def test_a_search_that_is_stopped_keeps_what_it_found(enough: int) -> None:
    """However early it is stopped, no run more is made, and what is kept still fails."""
    small, runs = shrink(large(), fails, told=lambda runs: runs < enough)
    assert fails(small)
    assert runs == enough or (runs < enough and small == shrink(large(), fails)[0])


def test_the_budget_ends_it() -> None:
    """No more runs than allowed."""
    assert shrink(large(), fails, runs_max=3)[1] == 3
