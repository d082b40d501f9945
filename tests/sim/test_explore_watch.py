"""An observed run is the run itself, and its steps say what was chosen, touched and made choosable."""

from __future__ import annotations

import pytest

from sim.explore.footprints import EVERYTHING
from sim.explore.steps import ADVANCE, REVEAL, Step, task_of
from sim.explore.watch import Observer, noting_tape
from sim.scenario import Scenario, parse_scenario
from sim.tape import Tape
from sim.world import Run, World

TWO = """
proves = "Two nodes are asked for two sessions."
name = "two"
[[nodes]]
name = "a"
sweep = false
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
text = "first"
at_s = 0.0
"""

STALLED = """
[[faults]]
kind = "stall"
node = "a"
for_s = 1.0
when = { event = "step.started", window = "notify" }
"""


def scenario(text: str = TWO) -> Scenario:
    found, problems = parse_scenario(text, "two.toml")
    assert found is not None, problems
    return found


def observed(one: Scenario, *schedule: int, store: tuple[int, ...] = ()) -> tuple[Run, list[Step], list[int]]:
    tape = noting_tape({"store": store})
    world = World(one, tape)
    observer = Observer(world, tape, schedule)
    run = world.run()
    run.close()
    return run, observer.steps(), [draw.bound for draw in tape.draws["schedule"]]


def labelled(steps: list[Step], task: str, label: str) -> list[Step]:
    return [
        step
        for step in steps
        if len(step.token) > 1 and task_of(step.token) == task and step.token[3] == label
    ]


# --- the run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [(), (1,), (0, 0, 2, 1)])
def test_watching_changes_nothing(schedule: tuple[int, ...]) -> None:
    """A run has the digest that it has unwatched, whatever its schedule."""
    run, _, _ = observed(scenario(), *schedule)
    plain = World(scenario(), Tape.replay({"schedule": schedule})).run()
    plain.close()
    assert run.trace.digest() == plain.trace.digest()


def test_steps_are_the_choices_of_the_run() -> None:
    """Each gate and timer that was chosen is one step; their bounds are those that were drawn."""
    run, steps, bounds = observed(scenario(), 0, 1, 1)
    chosen = [step for step in steps if step.choice is not None]
    told = [entry for entry in run.trace.entries if entry.kind in ("gate", "timer")]
    assert [step.token[1:4] for step in chosen] == [(one.node, one.task, one.label) for one in told]
    assert [step.bound for step in chosen if step.bound > 1] == bounds
    assert [step.ends for step in steps] == [False] * (len(steps) - 1) + [True]


@pytest.mark.parametrize("text", [TWO, TWO + STALLED])
def test_queues_follow_from_steps(text: str) -> None:
    """What could be chosen after a plain step is what waited before it, and what it brought, in order."""
    _, steps, _ = observed(scenario(text), 0, 1)
    queue: tuple[object, ...] = ()
    for step in steps:
        assert step.token in queue or step.choice is None
        left = queue if step.choice is None else (*queue[: step.choice], *queue[step.choice + 1 :])
        if step.plain and not step.ends:
            assert step.queue == (*left, *step.arrivals)
        assert not (step.token == ADVANCE and step.plain and queue)
        queue = step.queue


def test_a_paused_node_hides_what_waits() -> None:
    """While a node stands still its gates wait unseen, and no such step is taken for a plain one."""
    _, steps, _ = observed(scenario(TWO + STALLED))
    hidden = [step for step in steps if step.hidden]
    assert hidden
    assert not any(step.plain for step in hidden)


def test_a_held_gate_comes_when_nothing_else_can() -> None:
    """A gate that a trigger holds comes back as a step of its own, with an empty queue before it."""
    text = TWO + STALLED.replace("stall", "clock_step").replace("for_s = 1.0", "by_ms = 5")
    _, steps, _ = observed(scenario(text))
    places = [place for place, step in enumerate(steps) if step.token == REVEAL]
    assert len(places) == 1
    assert (steps[places[0] - 1].queue, steps[places[0] - 1].held) == ((), 1)
    assert len(steps[places[0]].arrivals) == 1


# --- what steps touch --------------------------------------------------------------------------------


def test_a_commit_touches_rows_and_the_other_nodes_bell() -> None:
    """The commit of an input writes the session's rows and b's doorbell, but nothing of b's own memory."""
    _, steps, _ = observed(scenario())
    commit = labelled(steps, "a/store writer", "commit")[0].footprint
    assert {"node/a", "event/ses_s", "input/ses_s", "bell/b"} <= {*commit.writes}
    assert not {"node/b", "bell/a", "event/ses_t"} & {*commit.writes, *commit.reads}


def test_a_sweep_reads_all_claims() -> None:
    """The sweep of b reads the claims of both sessions, at the gate at which it reads."""
    _, steps, _ = observed(scenario())
    sweeps = [
        step
        for step in steps
        if len(step.token) > 1 and "sweep/" in step.token[2] and step.token[3] == "read"
    ]
    assert sweeps
    assert {"claim/ses_s", "claim/ses_t"} <= {*sweeps[0].footprint.reads}
    assert sweeps[0].footprint.writes == ("node/b",)


def test_a_request_touches_the_providers_count() -> None:
    """Where a request is opened, the session's count of requests and the claim that the checks ask for."""
    _, steps, _ = observed(scenario())
    opened = [step.footprint for step in steps if "provider/ses_s" in step.footprint.writes]
    assert len(opened) == 1
    assert "claim/ses_s" in opened[0].reads


def test_what_belongs_to_all_touches_everything() -> None:
    """The world's own look at whether all is at rest, time, and a fault commute with nothing."""
    _, steps, _ = observed(scenario(TWO + STALLED))
    named = {task_of(step.token): step.footprint for step in steps if len(step.token) > 1}
    faults = [footprint for task, footprint in named.items() if "act/stall" in task]
    looks = [footprint for task, footprint in named.items() if "_main" in task]
    assert faults
    assert looks
    assert {*faults, *looks} == {EVERYTHING}
    assert {step.footprint for step in steps if step.choice is None} == {EVERYTHING}


def test_values_of_the_tape_are_shared_only_where_there_are_some() -> None:
    """Steps that draw what the file's tape gives depend on each other; zeros beyond its end are nobody's."""
    _, without, _ = observed(scenario())
    _, some, _ = observed(scenario(), store=(0, 1))
    assert not any("tape/store" in step.footprint.writes for step in without)
    assert sum("tape/store" in step.footprint.writes for step in some) in (1, 2)


def test_what_hooks_cant_see_makes_all_depend() -> None:
    """A trigger that counts the gates of all nodes lets no two steps commute."""
    gate = '[[faults]]\nkind = "clock_step"\nnode = "a"\nby_ms = 1\nwhen = { gate = 9 }\n'
    _, steps, _ = observed(scenario(TWO + gate))
    assert {step.footprint for step in steps} == {EVERYTHING}


def test_a_store_call_past_the_hooks_touches_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of which no row was told could have read any."""
    monkeypatch.setattr("sim.explore.watch.Observer._noted_work", lambda self, work: work)
    _, steps, _ = observed(scenario())
    reads = [step for step in steps if step.token[3:4] == ("read",)]
    assert reads
    assert {step.footprint for step in reads} == {EVERYTHING}
