"""Over toy worlds the reduced search reaches every outcome, runs no order twice, and sees bad footprints."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.explore.footprints import EVERYTHING, Footprint, Past, Touched
from sim.explore.search import Frontier
from sim.explore.states import FootprintsWrong, Search, State
from sim.explore.steps import ADVANCE, END, Step, Token

Op = tuple[str, str]
"""(what, on which variable or task): r reads, w writes, i waits for a moment, s looks at all."""


@attrs.define
class Toy:
    """Tasks that do one operation at a time, chosen from a queue as gates are."""

    tasks: Sequence[Sequence[Op]]
    blind: bool = False  #: its footprints leave out what is written
    runs: int = 0
    outcomes: dict[str, None] = attrs.field(factory=dict)

    def run(self, prefix: Sequence[int]) -> list[Step]:
        """One run; the outcome is what each task saw and what the variables hold."""
        self.runs += 1
        values: dict[str, int] = {}
        seen = [0 for _ in self.tasks]
        at = [0 for _ in self.tasks]
        due = list(range(len(self.tasks)))
        queue: list[int] = []
        draws = list(prefix)
        steps: list[Step] = []
        while queue or due:
            if not queue:
                queue, due = sorted(due), []
                tokens = tuple(self.token(task, at) for task in queue)
                steps.append(
                    Step(token=ADVANCE, choice=None, footprint=EVERYTHING, arrivals=tokens, queue=tokens)
                )
            choice = draws.pop(0) if len(queue) > 1 and draws else 0
            bound, task = len(queue), queue.pop(choice)
            token, what = self.token(task, at), self.tasks[task][at[task]]
            touched = self.act(task, what, values, seen)
            at[task] += 1
            arrived = [task] if at[task] < len(self.tasks[task]) and what[0] != "i" else []
            due += [task] if at[task] < len(self.tasks[task]) and what[0] == "i" else []
            queue += arrived
            steps.append(
                Step(
                    token=token,
                    choice=choice,
                    bound=bound,
                    footprint=touched.footprint(),
                    arrivals=tuple(self.token(one, at) for one in arrived),
                    queue=tuple(self.token(one, at) for one in queue),
                )
            )
        steps.append(Step(token=END, choice=None, footprint=EVERYTHING, ends=True))
        self.outcomes[f"{sorted(values.items())} {seen}"] = None
        return steps

    def token(self, task: int, at: Sequence[int]) -> Token:
        return "gate", "a.1", f"task{task}", "op", str(at[task])

    def act(self, task: int, what: Op, values: dict[str, int], seen: list[int]) -> Touched:
        touched = Touched()
        touched.write(f"task/{task}")
        match what:
            case ("r", name):
                seen[task] = seen[task] * 31 + values.get(name, 0) + 1
                touched.read(name)
            case ("w", name):
                values[name] = 7 * task + seen[task] + 1
                if not self.blind:
                    touched.write(name)
            case ("s", _):
                seen[task] = seen[task] * 31 + sum(values.values())
                touched.everything = True
        return touched


def ops() -> st.SearchStrategy[list[list[Op]]]:
    op = st.tuples(st.sampled_from("rwrwis"), st.sampled_from("xyz"))
    return st.lists(st.lists(op, min_size=1, max_size=3), min_size=1, max_size=3)


def unreduced(tasks: Sequence[Sequence[Op]], deviations: int) -> Toy:
    toy, frontier = Toy(tasks), Frontier(deviations)
    while (prefix := frontier.next()) is not None:
        frontier.ran(prefix, [step.bound for step in toy.run(prefix) if step.bound > 1])
    return toy


@settings(max_examples=300, deadline=None)
@given(ops(), st.integers(0, 4))
def test_it_reaches_what_every_schedule_reaches(tasks: list[list[Op]], deviations: int) -> None:
    """For any tasks and bound, the outcomes are those of all the schedules, and no more runs are needed."""
    toy, every = Toy(tasks), unreduced(tasks, deviations)
    search = Search(deviations, toy.run)
    assert search.whole()
    assert sorted(toy.outcomes) == sorted(every.outcomes)
    assert toy.runs <= every.runs


def test_what_is_independent_runs_once() -> None:
    """Three tasks that share nothing have one outcome, and one run is enough to know it."""
    tasks = [[("w", name)] * 3 for name in "xyz"]
    toy, every = Toy(tasks), unreduced(tasks, 2)
    search = Search(2, toy.run)
    assert search.whole()
    assert (toy.runs, search.merged > 0, every.runs > 50) == (1, True, True)


def test_what_depends_runs_in_each_order() -> None:
    """Two writers of one variable run in both orders."""
    toy = Toy([[("w", "x")], [("w", "x")]])
    assert Search(1, toy.run).whole()
    assert (toy.runs, len(toy.outcomes)) == (2, 2)


def test_the_bound_is_kept() -> None:
    """Without deviations there is one run, whatever could be reached with more."""
    toy = Toy([[("w", "x")], [("w", "x")], [("w", "x")]])
    assert Search(0, toy.run).whole()
    assert toy.runs == 1


def test_it_ends_when_a_run_says_so() -> None:
    """A run that returns nothing ends the search, which then isn't whole."""
    toy = Toy([[("w", "x")], [("w", "x")]])
    search = Search(1, lambda prefix: None if toy.runs else toy.run(prefix))
    assert not search.whole()
    assert toy.runs == 1


def test_a_run_that_was_foreseen_otherwise_is_an_error() -> None:
    """Steps that were foreseen and don't come are noticed, and never passed over."""
    toy = Toy([[("w", "x"), ("r", "x")], [("w", "y"), ("r", "x")], [("w", "x"), ("s", "")]])

    def lying(prefix: Sequence[int]) -> list[Step]:
        steps = toy.run(prefix)
        if not prefix:
            return steps
        return [attrs.evolve(step, token=(*step.token, "?")) for step in steps]

    with pytest.raises(FootprintsWrong, match="was foreseen"):
        Search(2, lying).whole()


def test_a_footprint_that_leaves_something_out_loses_outcomes() -> None:
    """The comparison of outcomes can fail: with writes that aren't told, the search misses some."""
    tasks: list[list[Op]] = [[("w", "x")], [("w", "x")]]
    blind = Toy(tasks, blind=True)
    assert Search(1, blind.run).whole()
    assert len(blind.outcomes) < len(unreduced(tasks, 1).outcomes)


def test_steps_that_arent_plain_are_never_foreseen_in_another_order() -> None:
    """Where the queue isn't known from the steps alone, each order runs."""
    toy = Toy([[("w", "x")], [("w", "y")]])

    def unclear(prefix: Sequence[int]) -> list[Step]:
        return [attrs.evolve(step, plain=step.choice is None) for step in toy.run(prefix)]

    assert Search(1, unclear).whole()
    assert toy.runs == 2


def test_footprints_are_told_apart() -> None:
    """The toy world itself: what a task reads and writes is in its footprint."""
    steps = Toy([[("r", "x"), ("w", "y")]]).run(())
    assert [step.footprint for step in steps[1:3]] == [
        Footprint(reads=("x",), writes=("task/0",)),
        Footprint(writes=("task/0", "y")),
    ]


def test_states_with_other_queues_are_others() -> None:
    """What waits, in its order, is part of a state; the order that led there only while some is hidden."""
    one, other = (("a",), ("b",)), (("b",), ("a",))
    assert State(queue=one).key != State(queue=other).key
    came, went = Past(whole=1, in_order=2), Past(whole=1, in_order=3)
    assert State(past=came, queue=one).key == State(past=went, queue=one).key
    assert State(past=came, queue=one, hidden=True).key != State(past=went, queue=one, hidden=True).key
