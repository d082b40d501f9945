"""The search runs each schedule once, says how it ended, and what it finds can be replayed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from sim.__main__ import main
from sim.explore.search import Frontier, explore
from sim.record import Record
from sim.run import judge
from sim.saved import rule_found, tape_of
from sim.scenario import Scenario, TapeSpec, load_scenario, parse_scenario
from sim.tape import Tape
from sim.verdict import Violation
from sim.world import World

SMALL = """
proves = "Two clients write to two sessions at once."
name = "small"
[[nodes]]
name = "a"
sweep = false
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
[[actions]]
do = "send"
node = "a"
session = "t"
text = "second"
at_s = 0.0
"""

ALONE = SMALL[: SMALL.rindex("[[actions]]")]
"""With one client the schedules are few."""


def scenario(text: str = SMALL) -> Scenario:
    found, problems = parse_scenario(text, "small.toml")
    assert found is not None, problems
    return found


def fifo_bounds(one: Scenario) -> list[int]:
    tape = Tape.fifo()
    World(one, tape).run().close()
    return [draw.bound for draw in tape.draws["schedule"]]


def t_first(record: Record) -> Iterator[Violation]:
    """Not an invariant: breaks in the schedules in which the second session is written to first."""
    if record.commits[0].events[0].session_id == "ses_t":
        yield Violation(rule="T1", sentence="t was first")


# --- the search --------------------------------------------------------------------------------------


class Tree:
    """Runs whose draws depend on what was drawn before, as real ones do."""

    def __init__(self, numbers: list[int], length: int) -> None:
        self.numbers = numbers
        self.length = length

    def bound(self, values: tuple[int, ...]) -> int:
        mixed = sum((place + 1) * (value + 3) for place, value in enumerate(values)) + len(values)
        return 1 + self.numbers[mixed % len(self.numbers)]

    def run(self, prefix: tuple[int, ...]) -> list[int]:
        values: tuple[int, ...] = ()
        bounds = []
        while len(values) < self.length:
            bounds.append(self.bound(values))
            values = (*values, prefix[len(values)] if len(values) < len(prefix) else 0)
        return bounds

    def leaves(self, values: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
        if len(values) == self.length:
            yield values
            return
        for value in range(self.bound(values)):
            yield from self.leaves((*values, value))


@given(st.lists(st.integers(0, 2), min_size=1, max_size=7), st.integers(0, 6), st.integers(0, 7))
def test_each_schedule_is_run_once(numbers: list[int], length: int, deviations: int) -> None:
    """In any tree of draws, every leaf with at most so many values that aren't 0 is visited exactly once."""
    tree, frontier = Tree(numbers, length), Frontier(deviations)
    visited = []
    while (prefix := frontier.next()) is not None:
        visited.append((*prefix, *(0 for _ in range(length - len(prefix)))))
        frontier.ran(prefix, tree.run(prefix))
    within = [leaf for leaf in tree.leaves() if sum(value != 0 for value in leaf) <= deviations]
    assert sorted(visited) == sorted(within)


def test_one_deviation_is_every_draw_once() -> None:
    """With one deviation there are as many schedules as other values of the draws of the plain order."""
    one = scenario(ALONE)
    found = explore(one, deviations=1, schedules_max=10_000, reduction=False)
    assert found.schedules == 1 + sum(bound - 1 for bound in fifo_bounds(one))
    assert found.end == "exhausted"
    assert found.failure is None


def test_no_deviation_is_the_plain_order() -> None:
    """Zero deviations are one schedule, the one that `run` runs."""
    one = scenario()
    found = explore(one, deviations=0, schedules_max=1)
    assert str(found) == "exhausted, d = 0, 1 schedules, 0 pruned, 1 different logs"
    assert found.gates == judge(one, Tape.fifo()).gates


def test_exhausted_and_budget_are_never_mixed_up() -> None:
    """The search that ends with its budget says `exhausted` only if nothing is left."""
    one = scenario(ALONE)
    every = explore(one, deviations=1, schedules_max=10_000).schedules
    assert str(explore(one, deviations=1, schedules_max=every)).startswith(f"exhausted, d = 1, {every} ")
    less = explore(one, deviations=1, schedules_max=every - 1)
    assert str(less).startswith(f"budget reached, d = 1, {every - 1} schedules")


def test_search_can_be_stopped() -> None:
    """A search that is told to stop says so, even after its last schedule."""
    found = explore(scenario(), deviations=0, schedules_max=9, told=lambda so_far: False)
    assert (found.end, found.schedules) == ("stopped early", 1)


# --- what it finds -----------------------------------------------------------------------------------


def test_what_only_another_order_breaks_is_found_and_replays() -> None:
    """What the plain order keeps and one deviation breaks is found, and the saved tape breaks it again."""
    one = scenario()
    assert judge(one, Tape.fifo(), checks=(t_first,)).violations == []
    found = explore(one, deviations=1, schedules_max=10_000, checks=(t_first,))
    assert found.end == "broken"
    assert found.failure is not None
    assert found.failure.scenario.tape is not None
    assert sum(value != 0 for value in found.failure.scenario.tape.schedule) == 1
    again = judge(found.failure.scenario, tape_of(found.failure.scenario), checks=(t_first,))
    assert [violation.rule for violation in again.violations] == ["T1"]


def test_other_streams_are_drawn_as_the_file_says() -> None:
    """Only the schedule is explored: a doorbell that the tape made late is late in each schedule."""
    one = attrs.evolve(scenario(), tape=TapeSpec(store=(1, 1), schedule=(1, 1, 1)))
    plain = explore(one, deviations=0, schedules_max=1, checks=(lambda record: [whole(record)],))
    assert plain.failure is not None
    assert plain.failure.scenario.tape == TapeSpec(store=(1, 1))


def whole(record: Record) -> Violation:
    return Violation(rule="T2", sentence=f"{len(record.commits)} commits")


# --- the command -------------------------------------------------------------------------------------


def test_the_command_says_how_it_ended(tmp_path: Path) -> None:
    """Exit status 0 and the one line; with `--json` the same facts as an object."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    done = CliRunner().invoke(main, ["explore", str(path), "--schedules-max", "3"])
    assert (done.exit_code, done.output.splitlines()[-1]) == (
        0,
        "budget reached, d = 1, 3 schedules, 0 pruned, 1 different logs",
    )
    done = CliRunner().invoke(main, ["explore", str(path), "--deviations", "0", "--json"])
    facts = json.loads(done.output)
    assert (facts["end"], facts["deviations"], facts["schedules"], facts["saved"]) == (
        "exhausted",
        0,
        1,
        None,
    )


def test_the_command_saves_the_first_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 1, and a file that can be read, with the tape that breaks the rule again."""
    path, saved = tmp_path / "small.toml", tmp_path / "broken.toml"
    path.write_text(SMALL)
    monkeypatch.setattr("sim.explore.search.check_invariants", lambda record: list(t_first(record)))
    done = CliRunner().invoke(main, ["explore", str(path), "--save", str(saved)])
    assert done.exit_code == 1
    assert done.output.startswith("BROKEN\n  t was first\n    T1\nbroken, d = 1, ")
    assert f"python -m sim replay {saved}" in done.output
    assert rule_found(load_scenario(saved)) == "T1"
    again = load_scenario(saved)
    assert [one.rule for one in judge(again, tape_of(again), checks=(t_first,)).violations] == ["T1"]


def test_the_command_refuses_what_it_cant_explore(tmp_path: Path) -> None:
    """Exit status 2 for a file that isn't there, and for one that expects that no engine opens."""
    missing = CliRunner().invoke(main, ["explore", str(tmp_path / "none.toml")])
    assert (missing.exit_code, "can't be read" in missing.output) == (2, True)
    path = tmp_path / "refused.toml"
    path.write_text(SMALL + '[[expect]]\nconfig_refused = "must"\n')
    assert CliRunner().invoke(main, ["explore", str(path)]).exit_code == 2


def test_the_command_can_run_every_schedule(tmp_path: Path) -> None:
    """Without reduction each schedule runs, and the line and the object say so."""
    path = tmp_path / "small.toml"
    path.write_text(ALONE)
    done = CliRunner().invoke(main, ["explore", str(path), "--no-reduction", "--schedules-max", "2"])
    assert done.output.splitlines()[-1] == (
        "budget reached, d = 1, 2 schedules without reduction, 1 different logs"
    )
    done = CliRunner().invoke(main, ["explore", str(path), "--no-reduction", "-d", "0", "--json"])
    facts = json.loads(done.output)
    assert (facts["reduction"], facts["schedules"], facts["pruned"], facts["outcomes"]) == (False, 1, 0, 1)
