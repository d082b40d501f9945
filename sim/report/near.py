"""The nearest run that held: the same scenario with the fewest changes, to be laid beside the one that broke.

One draw of the tape less comes first, then one part of the world less, then the whole tape in plain order,
then other orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from sim.project import MakeProject, Project
from sim.run import Check, judge
from sim.saved import tape_of
from sim.scenario import Action, Fault, NodeClock, Scenario, TapeSpec
from sim.tape import Tape
from sim.verdict import Violation

RUNS_MAX = 80
DRAWS_TRIED_MAX = 40
SEEDS_TRIED = 5


@attrs.frozen(kw_only=True)
class Near:
    """A change after which the run holds; `change` says it in words, `seed` fills its tape if given."""

    change: str
    scenario: Scenario
    seed: int | None = None

    def tape(self) -> Tape:
        """A fresh tape of that run."""
        return tape_of(self.scenario) if self.seed is None else Tape.seeded(self.seed)


def nearest_that_held(
    scenario: Scenario,
    violations: Sequence[Violation],
    checks: Sequence[Check] = (),
    *,
    runs_max: int = RUNS_MAX,
    project: MakeProject = Project,
) -> Near | None:
    """The first candidate, from the smallest change on, whose run breaks nothing; None if none was found.

    Where only invariants broke, what the file expects isn't asked of a world in which something is missing.
    """
    expectations_matter = any(violation.rule == "expect" for violation in violations)
    for runs, near in enumerate(_candidates(scenario, expectations_matter)):
        if runs >= runs_max:
            return None
        if not judge(near.scenario, near.tape(), checks, project=project).violations:
            return near
    return None


def _candidates(scenario: Scenario, expectations_matter: bool) -> Iterator[Near]:
    changed = _nonzero(scenario.tape)
    if 1 < len(changed) <= DRAWS_TRIED_MAX:
        yield from _one_draw_less(scenario, changed)
    for near in _one_part_less(scenario):
        kept = near.scenario.expect if expectations_matter else ()
        yield attrs.evolve(near, scenario=attrs.evolve(near.scenario, expect=kept))
    if changed:
        yield Near(change="first in, first out", scenario=attrs.evolve(scenario, tape=None))
    for seed in range(1, SEEDS_TRIED + 1):
        order = attrs.evolve(scenario, tape=None)
        yield Near(change=f"the order drawn from seed {seed}", scenario=order, seed=seed)


def _nonzero(tape: TapeSpec | None) -> list[tuple[str, int]]:
    """(stream, place) of each draw that isn't the default."""
    if tape is None:
        return []
    return [
        (stream, place)
        for stream, values in attrs.asdict(tape).items()
        for place, value in enumerate(values)
        if value
    ]


def _one_draw_less(scenario: Scenario, changed: Sequence[tuple[str, int]]) -> Iterator[Near]:
    assert scenario.tape is not None
    for stream, place in changed:
        values: tuple[int, ...] = getattr(scenario.tape, stream)
        calm: dict[str, Any] = {stream: (*values[:place], 0, *values[place + 1 :])}
        yield Near(
            change=f"draw {place} of {stream} is 0 instead of {values[place]}",
            scenario=attrs.evolve(scenario, tape=attrs.evolve(scenario.tape, **calm)),
        )


def _one_part_less(scenario: Scenario) -> Iterator[Near]:
    yield from _without(scenario, "faults", lambda fault: f"the fault {fault.as_ or fault.kind}")
    yield from _without(
        scenario, "listeners", lambda each: f"the listener of {each.node} that {each.does} at {each.event}"
    )
    for place, node in enumerate(scenario.nodes):
        if node.clock != NodeClock():
            right = attrs.evolve(node, clock=NodeClock())
            nodes = (*scenario.nodes[:place], right, *scenario.nodes[place + 1 :])
            yield Near(change=f"{node.name}'s clocks are right", scenario=attrs.evolve(scenario, nodes=nodes))
    yield from _without(
        scenario,
        "actions",
        lambda action: f"the {action.do} {action.as_ or ''} at {action.node}".replace("  ", " "),
    )


def _without(scenario: Scenario, part: str, name: Any) -> Iterator[Near]:
    """Each scenario with one item of a part less, the last first, and without what is expected of it."""
    items = getattr(scenario, part)
    for place in reversed(range(len(items))):
        gone = items[place]
        lost = getattr(gone, "as_", None)
        rest: dict[str, Any] = {part: (*items[:place], *items[place + 1 :])}
        rest["expect"] = tuple(each for each in scenario.expect if not _speaks_of(each, lost))
        smaller = attrs.evolve(scenario, **rest)
        if lost is None or not _waited_for(smaller, lost):
            yield Near(change=f"without {name(gone)}", scenario=smaller)


def _speaks_of(expect: Any, name: str | None) -> bool:
    return name is not None and name in (getattr(expect, key, None) for key in ("at", "after", "answer"))


def _waited_for(scenario: Scenario, name: str) -> bool:
    acts: list[Action | Fault] = [*scenario.actions, *scenario.faults]
    return any(getattr(act.when, "after", None) == name for act in acts)
