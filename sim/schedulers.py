"""Ways to fill a tape: which parked task goes next, and how the other streams are drawn.

A portfolio, because each finds what the others miss: shallow races show under uniform choice, deep ones under
priorities (PCT: Burckhardt et al., ASPLOS 2010), and plain orders with a few deviations stay readable.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from sim.tape import Picker, Tape

DEMOTIONS = 3
HORIZON = 400
"""Priorities change at this many random choices among the first so many."""

DEVIATION_PER_MILLE = 50


def uniform(rng: random.Random) -> Picker:
    """Any of them, each as likely."""
    return lambda names: int(rng.random() * len(names))


def first_in_first_out(rng: random.Random) -> Picker:
    """The one that waits longest, with a few random exceptions."""

    def pick(names: Sequence[str]) -> int:
        deviates = rng.random() * 1000 < DEVIATION_PER_MILLE
        return int(rng.random() * len(names)) if deviates else 0

    return pick


def last_in_first_out(rng: random.Random) -> Picker:
    """The one that came last, with a few random exceptions: others starve for long."""

    def pick(names: Sequence[str]) -> int:
        deviates = rng.random() * 1000 < DEVIATION_PER_MILLE
        return int(rng.random() * len(names)) if deviates else len(names) - 1

    return pick


def priorities(rng: random.Random) -> Picker:
    """The task with the highest random priority; at a few random moments the running one is demoted."""
    ranks: dict[str, float] = {}
    demote_at = sorted(int(rng.random() * HORIZON) for _ in range(DEMOTIONS))
    count = 0

    def pick(names: Sequence[str]) -> int:
        nonlocal count
        for name in names:
            if name not in ranks:
                ranks[name] = 1.0 + rng.random()
        best = max(range(len(names)), key=lambda place: ranks[names[place]])
        if demote_at and count >= demote_at[0]:
            demote_at.pop(0)
            ranks[names[best]] = rng.random() / (2 + count)
        count += 1
        return best

    return pick


SCHEDULERS: Mapping[str, Callable[[random.Random], Picker]] = {
    "uniform": uniform,
    "fifo": first_in_first_out,
    "lifo": last_in_first_out,
    "pct": priorities,
}


def scheduler_of(seed: int) -> str:
    """The scheduler that a campaign uses for a seed: each in turn."""
    names = list(SCHEDULERS)
    return names[seed % len(names)]


def tape_for(seed: int, scheduler: str) -> Tape:
    """A seeded tape whose schedule is drawn by one of the portfolio."""
    tape = Tape.seeded(seed)
    tape.picker = SCHEDULERS[scheduler](random.Random(f"{seed}/{scheduler}"))
    return tape
