"""What goes wrong with the machines of generated worlds: valid, varied, and plain where all draws are 0."""

from __future__ import annotations

from sim.generate.faults import KINDS, Mishaps
from sim.generate.worlds import generate
from sim.saved import dump
from sim.scenario import Fault, NodeClock, parse_scenario
from sim.tape import Tape


def drawn(seeds: int) -> list[Fault]:
    worlds = [generate(Tape.seeded(seed), "w") for seed in range(seeds)]
    return [fault for world in worlds for fault in world.faults]


def test_the_plainest_machine_is_right_and_its_plainest_fault_is_a_cancel() -> None:
    """Zeros give right clocks, fresh owner ids, and one cancel of one node that comes back as itself."""
    mishaps = Mishaps(Tape.fifo())
    assert (mishaps.clock(), mishaps.owner("a")) == (NodeClock(), None)
    assert mishaps.fault(["a", "b"], "a", {"at_s": 1.0}) == Fault(
        kind="cancel", node="a", for_s=1.0, at_s=1.0
    )


def test_every_kind_and_every_way_is_drawn() -> None:
    """A few hundred seeds give each kind of fault, strikes of all nodes, crash loops, and other owner ids."""
    faults = drawn(400)
    assert {fault.kind for fault in faults} >= set(KINDS)
    assert {fault.node == "*" for fault in faults} == {True, False}
    assert {fault.times for fault in faults} >= {None, 2, 4}
    assert any(fault.owner for fault in faults)
    assert any(fault.monotonic_stops is False for fault in faults)


def test_some_machines_boot_in_another_year() -> None:
    """Where one does, all right clocks show a year between, so that no clock is ever before 1970."""
    worlds = [generate(Tape.seeded(seed), "w") for seed in range(200)]
    booting = [world for world in worlds if any(node.clock.boot_offset_ms for node in world.nodes)]
    assert booting
    for world in booting:
        for node in world.nodes:
            assert node.clock.offset_ms + node.clock.boot_offset_ms > -10_000


def test_generated_faults_are_valid_files() -> None:
    """What is drawn can be written down and read again: each key belongs to its kind."""
    for seed in range(60):
        text = dump(generate(Tape.seeded(seed), "w"))
        assert parse_scenario(text, "w.toml")[1] == []
