"""Faults of the disk drawn from a tape: always valid, and the plainest from zeros."""

from __future__ import annotations

import attrs
import pytest

from sim.disk.draws import KINDS, disk_faults
from sim.run import judge
from sim.saved import dump
from sim.scenario import DISK_KINDS, Node, Scenario, Session, parse_scenario
from sim.scenario.model import Action
from sim.tape import Tape

WORLD = Scenario(
    proves="Nothing.",
    name="drawn",
    nodes=(Node(name="a"), Node(name="b")),
    sessions=(Session(name="s"),),
    actions=(Action(do="send", node="a", session="s", text="Go", at_s=0.0),),
)


def drawn(seed: int, *, sync_lies: bool = True) -> Scenario:
    """The world with what a seed's tape draws."""
    disk, faults = disk_faults(Tape.seeded(seed), sync_lies=sync_lies)
    return attrs.evolve(WORLD, disk=disk, faults=faults)


def test_zeros_draw_one_plain_loss_of_power() -> None:
    """At the start, with SQLite's own checkpoints."""
    disk, faults = disk_faults(Tape.fifo())
    assert disk.checkpoint_pages == 1000
    assert [(fault.kind, fault.at_s, fault.for_s) for fault in faults] == [("power_loss", 0.0, 1.0)]


def test_every_kind_is_drawn_and_lying_only_if_wanted() -> None:
    """Over some seeds each kind of the disk comes; where lies are excluded, none does."""
    assert sorted(KINDS) == sorted(DISK_KINDS)
    assert {fault.kind for seed in range(60) for fault in drawn(seed).faults} == set(KINDS)
    honest = {fault.kind for seed in range(60) for fault in drawn(seed, sync_lies=False).faults}
    assert honest == set(KINDS) - {"sync_lies"}


@pytest.mark.parametrize("seed", range(40))
def test_what_is_drawn_is_a_scenario_without_problems(seed: int) -> None:
    """It can be saved and read again as it was."""
    scenario = drawn(seed)
    read, problems = parse_scenario(dump(scenario), "drawn.toml")
    assert problems == []
    assert read is not None
    assert (read.disk, [attrs.evolve(fault, line=0) for fault in read.faults]) == (
        scenario.disk,
        list(scenario.faults),
    )


@pytest.mark.parametrize("seed", range(12))
def test_drawn_worlds_keep_every_invariant(seed: int) -> None:
    """Whatever the disk does, I15 among them."""
    result = judge(drawn(seed), Tape.seeded(seed))
    assert [str(violation) for violation in result.violations] == []
