"""On the real engine the search reaches the same outcomes with reduction as without, in fewer runs."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from sim.ablations.known import ABLATIONS
from sim.explore.search import Exploration, explore
from sim.generate.worlds import generate
from sim.scenario import Scenario, load_scenario, parse_scenario
from sim.tape import Tape
from sim.world import World

SCENARIOS = Path(__file__).parents[2] / "scenarios"

SMALL_DRAWS = 110
"""How many schedules deviate once in a world that is small enough to run them all here."""


def world(nodes: str, sessions: str, *acts: tuple[str, str, str]) -> Scenario:
    """A small scenario: nodes and sessions by their letters, and (action, node, session) at the start."""
    lines = ['proves = "It is explored."', 'name = "small"']
    lines += [f'[[nodes]]\nname = "{name}"\nsweep = false' for name in nodes]
    lines += [f'[[sessions]]\nname = "{name}"' for name in sessions]
    for do, node, session in acts:
        lines.append(f'[[actions]]\ndo = "{do}"\nnode = "{node}"\nsession = "{session}"\nat_s = 0.0')
        lines += ['text = "Good morning"'] if do == "send" else []
    found, problems = parse_scenario("\n".join(lines), "small.toml")
    assert found is not None, problems
    return found


def both(one: Scenario, deviations: int) -> tuple[Exploration, Exploration]:
    """The search with reduction, and without."""
    reduced = explore(one, deviations=deviations, schedules_max=10_000)
    every = explore(one, deviations=deviations, schedules_max=10_000, reduction=False)
    assert (reduced.end, every.end) == ("exhausted", "exhausted")
    return reduced, every


TINY = {
    "nobody asks for anything": (world("ab", "s"), 3),
    "three nodes start": (world("abc", "s"), 2),
    "one is interrupted, one is resumed": (
        world("ab", "st", ("interrupt", "a", "s"), ("resume", "b", "t")),
        1,
    ),
    "two nodes are asked for one session": (world("ab", "s", ("send", "a", "s"), ("send", "b", "s")), 1),
    "one node is idle": (world("ab", "s", ("send", "a", "s")), 1),
}


@pytest.mark.parametrize("name", TINY)
def test_small_worlds_have_the_same_outcomes(name: str) -> None:
    """What every schedule within the bound reaches is reached with fewer runs."""
    reduced, every = both(*TINY[name])
    assert sorted(reduced.outcomes) == sorted(every.outcomes)
    assert reduced.schedules < every.schedules
    assert reduced.pruned > 0


def test_outcomes_are_told_apart() -> None:
    """The comparison means something: the race of two nodes for one session has several outcomes."""
    reduced = explore(TINY["two nodes are asked for one session"][0], deviations=1, schedules_max=10_000)
    assert len(reduced.outcomes) > 1


@pytest.mark.parametrize("name", ["race_to_acquire", "race_to_take_over", "shutdown_in_mid_text"])
def test_scenario_files_have_the_same_outcomes(name: str) -> None:
    """The same on files with held gates, paused nodes and faults, which touch everything."""
    reduced, every = both(load_scenario(SCENARIOS / f"{name}.toml"), 1)
    assert sorted(reduced.outcomes) == sorted(every.outcomes)
    assert reduced.schedules < every.schedules


def small_generated(first: int) -> Scenario:
    """The first generated world from a seed on that has several nodes and few schedules."""
    for seed in range(first, first + 200):
        one = attrs.evolve(generate(Tape.seeded(seed), f"world-{seed}"), tape=None)
        if len(one.nodes) == 1:
            continue
        tape = Tape.fifo()
        World(one, tape, keep=False).run().close()
        if sum(draw.bound - 1 for draw in tape.draws["schedule"]) < SMALL_DRAWS:
            return one
    raise AssertionError(f"no small world among 200 from seed {first} on")


@pytest.mark.parametrize("first", [0, 140, 280])
def test_generated_worlds_have_the_same_outcomes(first: int) -> None:
    """The same on worlds that nobody made for it, with whatever befalls their nodes."""
    one = small_generated(first)
    reduced, every = both(one, 1)
    assert sorted(reduced.outcomes) == sorted(every.outcomes)
    assert reduced.schedules <= every.schedules


@pytest.mark.parametrize("reduction", [True, False])
def test_a_fault_of_order_is_found_either_way(reduction: bool) -> None:
    """With a protection switched off, the plain order holds and one deviation breaks I3, reduced or not."""
    ablation = next(one for one in ABLATIONS if one.name == "scope_before_the_lease")
    one = attrs.evolve(ablation.sources[0].make(Tape.seeded(0), "planted"), tape=None)
    with ablation.off():
        assert explore(one, deviations=0, schedules_max=1, reduction=reduction).failure is None
        found = explore(one, deviations=1, schedules_max=400, reduction=reduction)
    assert found.end == "broken"
    assert found.failure is not None
    assert "I3" in [violation.rule for violation in found.failure.violations]
