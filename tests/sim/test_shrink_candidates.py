"""Nothing in a world keeps the rest of it from being taken away."""

from __future__ import annotations

import attrs
import pytest

from sim.generate.worlds import generate
from sim.record import Record
from sim.saved import dump, is_valid, lengths, tape_of, with_tape
from sim.scenario import Node, Scenario, parse_scenario
from sim.schedulers import scheduler_of, tape_for
from sim.shrink.candidates import (
    WAYS,
    fewer_items,
    fewer_nodes,
    fewer_sessions,
    plainer_acts,
    plainer_machine,
    plainer_nodes,
    plainer_sessions,
    plainer_tools,
)
from sim.shrink.search import shrink
from sim.world import World

FULL = """
proves = "Everything that a scenario can have stands in it."
name = "full"
[config]
lease_ms = 40000
[disk]
synchronous = "full"
checkpoint_pages = 10
[[nodes]]
name = "a"
owner = "slot"
clock = { offset_ms = 900, boot_offset_ms = 100, boot_for_s = 2.0, steps = [{ at_s = 1.0, by_ms = 5 }] }
[[nodes]]
name = "b"
starts_at_s = 1.0
[[nodes]]
name = "c"
[[locations]]
name = "l"
[[sessions]]
name = "s"
location = "l"
mangle = [{ event = 1, does = "drop" }, { event = 2, does = "swap" }]
replies = [[{ text = "One" }, { cut = "reset" }], [{ text = "Two" }, { finish = "stop" }]]
[[sessions]]
name = "t"
[[tools]]
name = "look"
results = ["first", "second", "third"]
asks = "interrupt"
session = "t"
[[listeners]]
node = "b"
event = "text.started"
does = "raises"
[[listeners]]
node = "b"
event = "text.ended"
does = "raises"
[[followers]]
node = "c"
session = "t"
[[actions]]
as = "asked"
do = "send"
node = "a"
session = "s"
text = "Hello"
input = "in1"
at_s = 0.0
[[actions]]
as = "stop"
do = "interrupt"
node = "b"
session = "t"
when = { event = "text.started", session = "s", node = "a" }
[[actions]]
as = "on"
do = "resume"
node = "c"
session = "t"
when = { after = "stop" }
[[faults]]
as = "dark"
kind = "power_loss"
when = { disk = "sync", node = "b" }
for_s = 2.0
[[faults]]
kind = "stall"
node = "*"
when = { after = "dark", delay_s = 1.0 }
for_s = 1.0
times = 3
again_after_s = 2.0
[[expect]]
answer = "stop"
is = "settled"
[tape]
schedule = [0, 1]
"""


def full() -> Scenario:
    found, problems = parse_scenario(FULL, "full.toml")
    assert found is not None, problems
    return found


def smallest(keeps: object) -> Scenario:
    """What shrinking leaves of the full world, if only this matters."""
    assert callable(keeps)
    small, _ = shrink(full(), lambda each: bool(keeps(each)), runs_max=2_000)
    again, problems = parse_scenario(dump(small), "full.toml")
    assert again is not None, problems
    assert dump(again) == dump(small)
    return small


def test_a_world_of_which_nothing_matters_becomes_the_least_one() -> None:
    """One node, one session, and nothing else is left, however much there was."""
    small = smallest(lambda each: True)
    assert small == attrs.evolve(
        small,
        config={},
        disk=None,
        nodes=(Node(name=small.nodes[0].name, line=small.nodes[0].line),),
        sessions=small.sessions[:1],
        **dict.fromkeys(("tools", "locations", "listeners", "followers", "actions", "faults", "expect"), ()),
        tape=attrs.evolve(small.tape, schedule=()) if small.tape else None,
    )
    assert (small.sessions[0].location, small.sessions[0].mangle) == (None, ())
    assert len(small.sessions[0].replies) == 1


KEPT = {
    "a fault of the machine": lambda each: any(one.kind == "power_loss" for one in each.faults),
    "a fault of a node": lambda each: any(one.kind == "stall" for one in each.faults),
    "one mangled event": lambda each: any(one.does == "swap" for s in each.sessions for one in s.mangle),
    "one result of a tool": lambda each: any("second" in (one.results or ()) for one in each.tools),
    "a tool that asks": lambda each: any(one.asks for one in each.tools),
    "one listener": lambda each: any(one.event == "text.ended" for one in each.listeners),
    "a follower": lambda each: each.followers,
    "who waited for another": lambda each: any(one.do == "resume" for one in each.actions),
    "a trigger on a node": lambda each: any(getattr(one.when, "event", None) for one in each.actions),
    "a location": lambda each: each.locations,
    "a wrong clock": lambda each: any(one.clock.steps for one in each.nodes),
    "a setting": lambda each: each.config,
}


@pytest.mark.parametrize("case", KEPT)
def test_what_matters_stays_and_all_else_goes(case: str) -> None:
    """One node and one session are left beside the one thing that is needed, which stands alone."""
    small = smallest(KEPT[case])
    assert [len(small.nodes), len(small.sessions), len(small.expect)] == [1, 1, 0]
    parts = (small.faults, small.listeners, small.followers, small.actions, small.locations, small.tools)
    assert sum(len(part) for part in parts) <= 1
    assert sum(len(one.mangle) for one in small.sessions) <= 1
    assert all(len(one.results or ()) <= 1 and one.session is None for one in small.tools)
    assert all(one.times is None and one.node != "*" for one in small.faults)
    assert sum(len(one.clock.steps) for one in small.nodes) <= 1


def test_what_is_about_a_node_goes_with_it_or_is_about_another() -> None:
    """Each node can go in both ways, so that no world that is left names a node that isn't there."""
    base = attrs.evolve(full(), expect=())
    worlds = [each for each in fewer_nodes(base) if is_valid(each)]
    left = [("".join(node.name for node in each.nodes), len(each.actions)) for each in worlds]
    assert left == [("ab", 2), ("ab", 3), ("ac", 2), ("ac", 3), ("bc", 1), ("bc", 3)]


def test_what_is_about_a_session_goes_with_it() -> None:
    """Its clients and followers go, or are about another one; a tool that asks about it asks about its own
    session then."""
    base = attrs.evolve(full(), expect=())
    without_t, merged_into_s, without_s, *_ = [each for each in fewer_sessions(base) if is_valid(each)]
    assert [len(without_t.actions), len(without_t.followers)] == [1, 0]
    assert without_t.tools[0].session is None
    assert [one.session for one in merged_into_s.actions] == ["s", "s", "s"]
    assert [merged_into_s.followers[0].session, merged_into_s.tools[0].session] == ["s", "s"]
    assert len(without_s.actions) == 1, "who waits for an event of a session that is gone goes, too"


def test_who_waited_for_what_is_gone_waits_for_what_that_waited_for() -> None:
    """A chain of acts can be shortened at each link."""
    without_stop = next(
        each for each in fewer_items(full()) if [one.as_ for one in each.actions] == ["asked", "on"]
    )
    assert without_stop.actions[1].when == full().actions[1].when


@pytest.mark.parametrize(
    "way", [plainer_acts, plainer_machine, plainer_nodes, plainer_sessions, plainer_tools]
)
def test_each_way_changes_a_full_world(way: object) -> None:
    """It offers worlds that differ from the one they were made of, and are valid."""
    assert callable(way)
    assert any(each != full() and is_valid(each) for each in way(full()))


# --- worlds that run ---------------------------------------------------------------------------------


def steps_started(scenario: Scenario) -> int:
    """How many steps were started in a run of the scenario's own tape."""
    run = World(scenario, tape_of(scenario)).run()
    try:
        record = Record(run)
        rows = [row for one in record.sessions() for row in record.events(one)]
        return sum(row.type == "step.started" for row in rows)
    finally:
        run.close()


@pytest.mark.parametrize("seed", range(12))
def test_a_generated_world_becomes_the_smallest_that_still_breaks_a_rule(seed: int) -> None:
    """Were it against a rule that a step starts, one node, one session and one client would be left of any
    world; the file of it can be read, and breaks the rule again."""
    tape = tape_for(seed, scheduler_of(seed))
    scenario = generate(tape, f"seed_{seed}")
    since = lengths(tape)
    World(scenario, tape).run().close()
    whole = with_tape(scenario, tape, since)
    assert is_valid(whole)
    if not steps_started(whole):
        pytest.skip("no step starts in this world")
    small, runs = shrink(whole, lambda each: steps_started(each) > 0)
    again, problems = parse_scenario(dump(small), "small.toml")
    assert problems == []
    assert again is not None
    assert steps_started(again) > 0
    assert runs < 200
    assert [len(small.nodes), len(small.sessions), len(small.actions), len(small.faults)] == [1, 1, 1, 0]
    assert (small.listeners, small.followers, small.tools, small.sessions[0].mangle) == ((), (), (), ())


def test_the_search_ends_where_no_candidate_is_left() -> None:
    """Of the smallest world each way offers only what is the same or isn't valid."""
    small = smallest(lambda each: True)
    left = [each for way in WAYS for each in way(small) if each != small and is_valid(each)]
    assert left == []
