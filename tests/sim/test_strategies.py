"""Hypothesis drives whole worlds: its draws are the tape."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, Phase, find, given, settings

from sim.run import judge
from sim.scenario import Scenario, load_scenario
from sim.strategies import tapes, worlds
from sim.tape import Tape

FLAGSHIP = load_scenario("scenarios/interrupted_step_started.toml")
SLOW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
# A whole world takes minutes to shrink; what fails here is found again by `fuzz`, whose shrinking is quicker.
UNSHRUNK = settings(SLOW, phases=(Phase.explicit, Phase.reuse, Phase.generate))


@UNSHRUNK
@given(worlds())
def test_drawn_worlds_keep_every_invariant(world: tuple[Scenario, Tape]) -> None:
    """Whatever world and schedule Hypothesis draws, no invariant breaks."""
    assert judge(*world).violations == []


@UNSHRUNK
@given(tapes())
def test_the_flagship_holds_under_any_schedule(tape: Tape) -> None:
    """The interrupted step is settled once under every schedule that Hypothesis draws."""
    assert judge(FLAGSHIP, tape).violations == []


def test_the_simplest_world_is_a_plain_one() -> None:
    """Hypothesis shrinks towards zeros: one node with a right clock, one session, one answer, no fault."""
    world, tape = find(worlds(), lambda drawn: True, random=random.Random(0), settings=SLOW)
    assert (len(world.nodes), len(world.sessions), world.faults, world.listeners) == (1, 1, (), ())
    assert tape.changed() == 0
