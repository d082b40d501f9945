"""Looks for an ablation seed by seed, each with a control run that has the protection on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence

import attrs

from sim.ablations.known import Ablation, Source
from sim.checks import check_invariants
from sim.record import Record
from sim.schedulers import scheduler_of, tape_for
from sim.verdict import Violation
from sim.world import World

SEEDS_MAX = 400
SAMPLE = 40
"""So many seeds are run even when the first one finds it: a rate from one seed says nothing."""


@attrs.frozen(kw_only=True)
class Finding:
    """What became of one ablation. `seeds` were tried until it was found, `runs` altogether (each with its
    control run); `hits` of them broke an invariant that must see it; `control` sentences say what broke with
    the protection on."""

    ablation: Ablation
    by: str | None
    violation: Violation | None
    seeds: int
    runs: int
    hits: int
    control: tuple[str, ...]

    @property
    def found(self) -> bool:
        """Whether it was seen, and nothing broke without it."""
        return self.violation is not None and not self.control

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "name": self.ablation.name,
            "protection": self.ablation.protection,
            "found": self.found,
            "by": self.by,
            "invariant": None if self.violation is None else self.violation.rule,
            "seeds": self.seeds,
            "runs": self.runs,
            "per_1000": round(1000 * self.hits / self.runs, 1) if self.runs else 0.0,
            "sentence": None if self.violation is None else self.violation.sentence,
            "control": list(self.control),
        }


def search(
    ablation: Ablation,
    *,
    seeds_max: int = SEEDS_MAX,
    sample: int = SAMPLE,
    sources: Sequence[Source] | None = None,
    told: Callable[[int], bool] = lambda runs: True,
) -> Finding:
    """Run seeds until the ablation is found and the sample is complete, at most `seeds_max`.

    `told` hears of every seed; False from it stops the search. `sources` replace the ablation's own worlds.
    """
    places = sources or ablation.sources
    first: Violation | None = None
    by: str | None = None
    seeds = runs = hits = 0
    control: list[str] = []
    while runs < seeds_max and not (first is not None and runs >= sample) and not control:
        source, seed = places[runs % len(places)], runs
        # that the engine refuses a configuration is one of the protections
        sound = [violation for violation in run_seed(source, seed) if violation.rule != "config"]
        control += [f"seed {seed}: {violation}" for violation in sound]
        with ablation.off():
            broken = run_seed(source, seed)
        runs += 1
        seen = telling(ablation, broken)
        hits += seen is not None
        if first is None:
            first, by, seeds = seen, None if seen is None else source.name, runs
        if not told(runs):
            break
    return Finding(
        ablation=ablation,
        by=by,
        violation=first,
        seeds=seeds,
        runs=runs,
        hits=hits,
        control=tuple(control),
    )


def telling(ablation: Ablation, violations: Sequence[Violation]) -> Violation | None:
    """The violation that says most about this ablation; None if none speaks of it."""
    for invariant in ablation.invariants:
        for violation in violations:
            if violation.rule == invariant:
                return violation
    return None


def run_seed(source: Source, seed: int) -> list[Violation]:
    """What breaks in the world that a seed draws from a source. What the engine logs is dropped: with a
    protection off it has much to complain of."""
    tape = tape_for(seed, scheduler_of(seed))
    scenario = source.make(tape, f"{source.name}_{seed}")
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stderr(nowhere),
        source.trouble(tape),
    ):
        run = World(scenario, tape).run()
        try:
            return check_invariants(Record(run))
        finally:
            run.close()
