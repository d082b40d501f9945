"""Generated worlds: valid files, small ones first, and everything that clients and tools may do in them."""

from __future__ import annotations

import collections

import attrs
from hypothesis import HealthCheck, given, settings

from sim.generate.worlds import NODE_NAMES, ON_DISK, SESSION_NAMES, disturb, generate
from sim.saved import dump
from sim.scenario import DISK_KINDS, Disk, Scenario, parse_scenario
from sim.strategies import tapes
from sim.tape import Tape

SEEDS = 600
MANY = settings(deadline=None, suppress_health_check=list(HealthCheck))


def world(seed: int) -> Scenario:
    """The world of a seed."""
    return generate(Tape.seeded(seed), f"seed_{seed}")


@MANY
@given(tapes())
def test_a_generated_world_is_a_valid_file_and_reads_back_as_itself(tape: Tape) -> None:
    """What a campaign saves passes `check`, and is the world that failed."""
    made = generate(tape, "made")
    read, problems = parse_scenario(dump(made), "made.toml")
    assert problems == []
    assert read is not None
    assert dump(read) == dump(made)


def test_zeros_are_one_node_and_one_plain_session() -> None:
    """Where nothing is drawn, one node answers one session, and nothing goes wrong."""
    made = generate(Tape.fifo(), "plain")
    assert (len(made.nodes), len(made.sessions), len(made.actions)) == (1, 1, 1)
    assert (made.faults, made.listeners, made.followers, made.sessions[0].mangle) == ((), (), (), ())


def test_small_worlds_are_likely_and_large_ones_occur() -> None:
    """One to eight nodes and one to four sessions all occur; most worlds have three nodes or fewer."""
    worlds = [world(seed) for seed in range(SEEDS)]
    nodes = collections.Counter(len(one.nodes) for one in worlds)
    sessions = collections.Counter(len(one.sessions) for one in worlds)
    assert sorted(nodes) == list(range(1, len(NODE_NAMES) + 1))
    assert sorted(sessions) == list(range(1, len(SESSION_NAMES) + 1))
    assert sum(nodes[few] for few in (1, 2, 3)) > SEEDS * 0.6
    assert nodes[8] < nodes[1] / 2


def test_clients_do_all_that_they_may() -> None:
    """Every verb of a client but starting and stopping nodes occurs, and inputs are sent twice by one id."""
    worlds = [world(seed) for seed in range(SEEDS)]
    verbs = {action.do for one in worlds for action in one.actions}
    assert verbs == {
        *("send", "interrupt", "resume", "wake", "cancel_input", "delete", "release", "discard", "poison"),
    }
    twice = 0
    for one in worlds:
        ids = [action.input for action in one.actions if action.do == "send" and action.input]
        twice += len(ids) > len(set(ids))
    assert twice > 0
    assert len({follower.after_seq for one in worlds for follower in one.followers}) > 10


def test_damage_is_rare_and_done_to_logs_that_are_there() -> None:
    """Few worlds have a log that is damaged; nobody deletes sessions there, or discards one beforehand."""
    damaged = [one for one in map(world, range(SEEDS)) if any(act.do == "poison" for act in one.actions)]
    assert 0 < len(damaged) < SEEDS / 3
    for one in damaged:
        assert not [act for act in one.actions if act.do == "delete"]
        assert not [tool for tool in one.tools if tool.asks == "delete"]
        assert all(act.when is not None for act in one.actions if act.do == "discard")


def test_odd_tools_and_mangled_events_occur_and_can_be_absent() -> None:
    """Whole kinds of trouble are switched on or off, so that each is also seen alone."""
    worlds = [world(seed) for seed in range(SEEDS)]
    odd = [one for one in worlds if any(tool.name == "odd" for tool in one.tools)]
    mangled = [one for one in worlds if any(session.mangle for session in one.sessions)]
    assert 0 < len(odd) < SEEDS
    assert 0 < len(mangled) < SEEDS / 2
    asked = {tool.asks for one in odd for tool in one.tools}
    assert asked == {None, "send", "interrupt", "resume", "delete"}


def test_a_projects_tools_are_called_in_place_of_the_odd_ones() -> None:
    """A world that is made for a project has composed replies that call its tools."""
    made = [generate(Tape.seeded(seed), "made", {"book": [{}]}) for seed in range(60)]
    assert any('tool = "book"' in dump(one) for one in made)


def machine_kinds(one: Scenario) -> set[str]:
    """The kinds of faults of the machine that a world has."""
    return {fault.kind for fault in one.faults} & set(DISK_KINDS)


def test_some_worlds_have_a_disk_that_fails_and_the_others_none() -> None:
    """About one in five, with each kind of the machine's faults; without a disk the machine has none."""
    worlds = [world(seed) for seed in range(SEEDS)]
    disks = [one for one in worlds if one.disk is not None]
    assert SEEDS / ON_DISK / 2 < len(disks) < SEEDS / ON_DISK * 2
    assert all(machine_kinds(one) for one in disks)
    assert {kind for one in disks for kind in machine_kinds(one)} == set(DISK_KINDS)
    assert not any(machine_kinds(one) for one in worlds if one.disk is None)


def test_a_disturbed_world_has_faults_of_the_machine_only_if_it_has_a_disk() -> None:
    """A file without `[disk]` has none to fail; with one, some seeds leave it alone."""
    plain = generate(Tape.fifo(), "plain")
    on_disk = attrs.evolve(plain, disk=Disk(checkpoint_pages=60))
    disturbed = [disturb(Tape.seeded(seed), on_disk, "disturbed") for seed in range(100)]
    assert {kind for one in disturbed for kind in machine_kinds(one)} == set(DISK_KINDS)
    assert any(not machine_kinds(one) for one in disturbed)
    assert all(one.disk == on_disk.disk for one in disturbed)
    assert not any(machine_kinds(disturb(Tape.seeded(seed), plain, "disturbed")) for seed in range(100))
    assert disturb(Tape.fifo(), on_disk, "disturbed").faults == ()


def test_a_store_fails_as_a_whole_or_at_one_statement() -> None:
    """Errors before the batch, hidden commits, refused BEGINs and refused statements all occur."""
    faults = [fault for seed in range(SEEDS) for fault in world(seed).faults if fault.kind == "store_error"]
    assert {(fault.inside, fault.applied) for fault in faults} == {
        *((None, False), (None, True), ("begin", None), ("work", None)),
    }
    assert {fault.statement for fault in faults if fault.inside == "work"} == {1, 2, 4}
