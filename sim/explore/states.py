"""The search over schedules that runs none twice: orders of steps that commute lead to one state.

A state is what happened so far, up to the order of steps that commute (`Past`), and the queue of what can be
chosen. From equal states the same choices lead to the same ends, so a state that was searched with as many
deviations left isn't searched again. What a step does is known from any run in which it came after the same
steps that it depends on: the search follows known steps without a run, and runs only what it can't foresee.

So it reaches the same ends as the search without reduction, for every bound on deviations, if footprints miss
nothing. Each run is held to what was foreseen of it, and one that differs is an error of the footprints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from sim.explore.footprints import Footprint, Past
from sim.explore.steps import ADVANCE, REVEAL, Step, Token, task_of

Prefix = tuple[int, ...]
"""A schedule's draws up to its last deviation; zeros follow."""


class FootprintsWrong(AssertionError):
    """A run did something else than was foreseen from the footprints of its steps."""


@attrs.frozen(kw_only=True)
class Known:
    """What a step with this hash does, wherever it happens."""

    hash: int
    step: Step


@attrs.frozen(kw_only=True)
class State:
    """Where a schedule stands: after `steps` steps, of which `draws` were drawn."""

    past: Past = attrs.field(factory=Past)
    queue: tuple[Token, ...] = ()
    held: int = 0
    hidden: bool = False
    draws: Prefix = ()
    steps: int = 0
    told: int = 0  #: a hash of its steps in their very order

    @property
    def key(self) -> tuple[int, tuple[Token, ...]]:
        """Equal for states with the same future."""
        return (self.past.in_order if self.hidden else self.past.whole), self.queue

    def token(self, choice: int) -> Token:
        """What would happen next."""
        if self.queue:
            return self.queue[choice]
        return REVEAL if self.held else ADVANCE

    def after(self, known: Known, choice: int) -> State:
        """The state once it has."""
        step = known.step
        past = self.past.after(step.token, known.hash, step.footprint)
        left = (*self.queue[:choice], *self.queue[choice + 1 :])
        if step.token == ADVANCE and step.plain:
            past = past.joined()
        return State(
            past=past,
            queue=(*left, *step.arrivals) if step.plain else step.queue,
            held=step.held,
            hidden=step.hidden,
            draws=(*self.draws, choice) if len(self.queue) > 1 else self.draws,
            steps=self.steps + 1,
            told=hash((self.told, step.token)),
        )


class Knowledge:
    """What steps are known to do."""

    def __init__(self) -> None:
        self._plain: dict[Token, dict[Footprint, dict[int, Known]]] = {}
        self._others: dict[int, Known] = {}

    def foresee(self, state: State, choice: int) -> Known | None:
        """What the choice does in this state; None if that was never seen."""
        token = state.token(choice)
        if not state.hidden:
            for footprint, seen in self._plain.get(token, {}).items():
                known = seen.get(state.past.of(token, footprint))
                if known is not None:
                    return known
        return self._others.get(state.past.of_order(token))

    def learn(self, state: State, step: Step) -> Known:
        """What was seen to happen in this state."""
        if not step.plain:
            known = Known(hash=state.past.of_order(step.token), step=step)
            return self._others.setdefault(known.hash, known)
        known = Known(hash=state.past.of(step.token, step.footprint), step=step)
        seen = self._plain.setdefault(step.token, {}).setdefault(step.footprint, {})
        return seen.setdefault(known.hash, known)


@attrs.define
class Search:
    """Every end of a schedule with at most `deviations`, each once.

    `run` runs a schedule and returns its steps; it returns None to end the search. `merged` counts the
    deviations that led to where the search had been.
    """

    deviations: int
    run: Callable[[Prefix], Sequence[Step] | None]
    merged: int = 0
    _knowledge: Knowledge = attrs.field(factory=Knowledge)
    _searched: dict[tuple[int, tuple[Token, ...]], int] = attrs.field(factory=dict)
    _levels: list[Iterator[tuple[State, int]]] = attrs.field(factory=list)

    def whole(self) -> bool:
        """Search everything, depth first. False if `run` ended it."""
        self._levels = [iter([(State(), 0)])]
        while self._levels:
            branch = next(self._levels[-1], None)
            if branch is None:
                self._levels.pop()
            elif not self._follow(*branch):
                return False
        return True

    def _follow(self, state: State, choice: int) -> bool:
        """First in, first out after this choice, until the end or until where the search has been."""
        left = self.deviations + 1 - len(self._levels)
        passed: list[State] = []
        ran: Sequence[Step] | None = None
        while True:
            known = self._knowledge.foresee(state, choice)
            if known is None:
                if ran is None:
                    ran = self.run(_trimmed((*state.draws, choice)))
                    if ran is None:
                        return False
                    _hold_to(ran, state)
                known = self._knowledge.learn(state, ran[state.steps])
            ended, moved = known.step.ends, known.step.token == ADVANCE and known.step.plain
            state, choice = state.after(known, choice), 0
            if ended:
                self.merged += ran is None
                break
            if self._searched.get(state.key, -1) >= left:
                self.merged += ran is None
                break
            self._searched[state.key] = left
            passed.append(state)
            if left == 0 and moved and ran is not None:
                break  # whoever comes to the rest of this run comes by here
        if left > 0:
            self._levels.append(_deviations(passed))
        return True


def _deviations(passed: Sequence[State]) -> Iterator[tuple[State, int]]:
    """The branches that leave first in, first out at one of these states."""
    for state in passed:
        for choice in range(1, len(state.queue)):
            yield state, choice


def _hold_to(ran: Sequence[Step], state: State) -> None:
    """Raise `FootprintsWrong` unless the run began with the steps that led to this state, as foreseen."""
    told = 0
    for step in ran[: state.steps]:
        told = hash((told, step.token))
    waits = ran[state.steps - 1].queue if state.steps else ()
    same = len(waits) == len(state.queue) and all(map(_may_be, waits, state.queue))
    if told != state.told or not same:
        raise FootprintsWrong(f"after {state.steps} steps {waits} waited, and {state.queue} was foreseen")


def _may_be(one: Token, other: Token) -> bool:
    """Whether two tokens can be the same; a run that ended before one was chosen knows only its task."""
    return one == other or ((len(one) == 1 or len(other) == 1) and task_of(one) == task_of(other))


def _trimmed(draws: Prefix) -> Prefix:
    end = len(draws)
    while end and draws[end - 1] == 0:
        end -= 1
    return draws[:end]
