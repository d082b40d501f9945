"""The steps of a run, as the search over schedules knows them: what was chosen, what it touched, and what
could be chosen after it.

Time's moves are steps of their own, and so is the moment at which held gates go on: both come when nothing
else can be chosen, whatever the order of the steps before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from sim.explore.footprints import EVERYTHING, Footprint
from sim.trace import Entry

Token = tuple[str, ...]
"""Something that can be chosen: its whole key; or only its task, if a run ended before it was chosen."""

ADVANCE: Token = ("time moves",)
REVEAL: Token = ("what was held goes on",)
END: Token = ("the end",)


def task_of(token: Token) -> str:
    """The task that a token stands for, with its node."""
    return token[0] if len(token) == 1 else f"{token[1].rpartition('.')[0]}/{token[2]}"


def token_of(entry: Entry) -> Token:
    """What was chosen, by the entry of the trace that tells it."""
    return entry.kind, entry.node, entry.task, entry.label, str(entry.fields["nth"])


@attrs.frozen(kw_only=True)
class Step:
    """One step of a run. `choice` is None for time's own.

    `arrivals` were choosable after it, behind those that waited already. Where that isn't all, since some
    were hidden or taken back, `plain` is False and `queue` has the whole. `ends`: it was the run's last.
    """

    token: Token
    choice: int | None
    footprint: Footprint
    bound: int = 1
    arrivals: tuple[Token, ...] = ()
    queue: tuple[Token, ...] = ()
    plain: bool = True
    held: int = 0  #: how many are held after it, until nothing else can be chosen
    hidden: bool = False  #: after it, some of a paused node wait among the others, and nobody knows where
    ends: bool = False


@attrs.define(eq=False)
class _Waiting:
    """Something that waits to be chosen; a run may end before it is."""

    task: str
    token: Token | None = None

    def named(self) -> Token:
        return self.token or (self.task,)


@attrs.frozen(kw_only=True)
class Chosen:
    """A choice as it was seen: the trace's entry that tells it, and the tasks that it was made from."""

    entry: Entry
    tasks: tuple[str, ...]
    choice: int
    held: int
    hidden: bool
    advanced: bool


# --- queues ------------------------------------------------------------------------------------------


def _queues(chosen: Sequence[Chosen]) -> list[list[_Waiting]]:
    """What could be chosen from at each choice, the same objects as long as they wait."""
    queues: list[list[_Waiting]] = []
    left: list[_Waiting] = []
    for one in chosen:
        known = [waiting.task for waiting in left]
        begins = list(one.tasks[: len(left)]) == known
        kept = left if begins else []
        queue = [*kept, *(_Waiting(task) for task in one.tasks[len(kept) :])]
        queue[one.choice].token = token_of(one.entry)
        queues.append(queue)
        left = queue[: one.choice] + queue[one.choice + 1 :]
    return queues


def steps_of(chosen: Sequence[Chosen], footprints: Sequence[Footprint]) -> Iterator[Step]:
    """The steps that these choices began, and those of time among them."""
    if not chosen:
        yield Step(token=END, choice=None, footprint=EVERYTHING, ends=True)
    queues = _queues(chosen)
    for place, one in enumerate(chosen):
        queue = queues[place]
        if place == 0 or one.advanced:
            tokens = tuple(waiting.named() for waiting in queue)
            hidden = one.hidden or (place > 0 and chosen[place - 1].hidden)
            yield Step(
                token=ADVANCE,
                choice=None,
                footprint=EVERYTHING,
                arrivals=tokens,
                queue=tokens,
                plain=not hidden,
                hidden=one.hidden,
            )
        left = queue[: one.choice] + queue[one.choice + 1 :]
        step = Step(
            token=token_of(one.entry), choice=one.choice, bound=len(queue), footprint=footprints[place]
        )
        if place + 1 == len(chosen):
            yield from _last(step, one, left)
        else:
            yield from _followed(step, one, left, chosen[place + 1], queues[place + 1])


def _followed(
    step: Step, one: Chosen, left: list[_Waiting], following: Chosen, queue: list[_Waiting]
) -> Iterator[Step]:
    clear = not (one.hidden or following.hidden)
    if following.advanced:
        yield attrs.evolve(step, plain=clear and not left and not one.held, hidden=following.hidden)
        return
    tokens = tuple(waiting.named() for waiting in queue)
    if clear and one.held and not following.held and not left:
        yield attrs.evolve(step, held=one.held)
        yield Step(token=REVEAL, choice=None, footprint=EVERYTHING, arrivals=tokens, queue=tokens)
        return
    continues = [id(waiting) for waiting in left] == [id(waiting) for waiting in queue[: len(left)]]
    same = following.held == one.held or step.footprint.everything
    yield attrs.evolve(
        step,
        plain=clear and continues and same,
        arrivals=tokens[len(left) :] if continues else (),
        queue=tokens,
        held=following.held,
        hidden=following.hidden,
    )


def _last(step: Step, one: Chosen, left: list[_Waiting]) -> Iterator[Step]:
    """The end of a run: the doing of a step that touches everything, or of nothing being left to choose."""
    if step.footprint.everything or left or one.held or one.hidden:
        yield attrs.evolve(step, plain=step.footprint.everything and not one.hidden, ends=True)
        return
    yield step
    yield Step(token=END, choice=None, footprint=EVERYTHING, ends=True)
