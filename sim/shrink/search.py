"""Makes a failing scenario small: what isn't needed for the same rule to break is taken away.

First the world (`sim.shrink.candidates` says in which steps), then the draws of its tape, towards zeros.
"""

from __future__ import annotations

from collections.abc import Callable

from sim.saved import is_valid
from sim.scenario import Scenario
from sim.shrink.candidates import WAYS, Way

STILL_FAILS = Callable[[Scenario], bool]

RUNS_MAX = 400


class _Stopped(Exception):
    """The budget is used up, or whoever waits has had enough."""


def shrink(
    scenario: Scenario,
    still_fails: STILL_FAILS,
    *,
    runs_max: int = RUNS_MAX,
    told: Callable[[int], bool] = lambda runs: True,
) -> tuple[Scenario, int]:
    """The smallest scenario found that still fails, and how many runs that took.

    `still_fails` runs a candidate; it gets only those of which a file could be written and read again. `told`
    is asked before each run; False from it ends the search with what was found so far.
    """
    search = _Search(scenario, still_fails, runs_max, told)
    try:
        while search.round():
            pass
    except _Stopped:
        pass
    return search.smallest, search.runs


class _Search:
    def __init__(
        self, scenario: Scenario, still_fails: STILL_FAILS, runs_max: int, told: Callable[[int], bool]
    ) -> None:
        self.smallest = scenario
        self.runs = 0
        self._still_fails = still_fails
        self._runs_max = runs_max
        self._told = told

    def round(self) -> bool:
        """Go through all ways to make it smaller, each as often as it helps; whether any did."""
        before = self.smallest
        for way in WAYS:
            place: int | None = 0
            while place is not None:
                place = self._go_on(way, place)
        return self.smallest != before

    def _go_on(self, way: Way, start: int) -> int | None:
        """Try what this way offers from a place on; where something failed, None if nothing did. What had no
        effect before is left to the next round: it will hardly have one now."""
        for place, candidate in enumerate(way(self.smallest)):
            if place >= start and self._fails(candidate):
                return place
        return None

    def _fails(self, candidate: Scenario) -> bool:
        """Run a candidate, and go on from it if it fails. Raises `_Stopped`."""
        if candidate == self.smallest or not is_valid(candidate):
            return False
        if self.runs >= self._runs_max or not self._told(self.runs):
            raise _Stopped
        self.runs += 1
        fails = self._still_fails(candidate)
        if fails:
            self.smallest = candidate
        return fails
