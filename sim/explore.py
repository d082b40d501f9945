"""Explores the schedules of a small scenario: every order of its tasks that deviates from first in, first out
at most so many times.

Bounding deviations keeps the search finite and puts the likely faults first: most faults of order need one or
two late tasks ("delay bounding": Emmi, Qadeer and Rakamaric, POPL 2011). The search keeps no states: a
schedule is the list of its draws up to the last deviation, and its successors deviate once more, later on. So
each is run once, and none is left out.

Orders that come to the same in the end aren't recognised before they have run. The order in which tasks queue
is part of the world's state, so even two gates that touch nothing in common don't commute.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence

import attrs

from sim.checks import check_invariants
from sim.record import Record
from sim.run import Check
from sim.saved import with_tape
from sim.scenario import Scenario, TapeSpec
from sim.tape import STREAMS, Draw, Tape
from sim.verdict import Violation
from sim.world import World

STREAM = "schedule"

Prefix = tuple[int, ...]
"""A schedule's draws up to its last deviation; zeros follow."""


@attrs.define
class Frontier:
    """The schedules that are still to be run, depth first; each but the first deviates where it ends."""

    deviations: int
    _levels: list[Iterator[Prefix]] = attrs.field(factory=lambda: [iter([()])])

    def next(self) -> Prefix | None:
        """The schedule to run now; None if all have been."""
        while self._levels:
            prefix = next(self._levels[-1], None)
            if prefix is not None:
                return prefix
            self._levels.pop()
        return None

    def ran(self, prefix: Prefix, bounds: Sequence[int]) -> None:
        """The schedule that `next` gave was run, and its draws had these bounds."""
        if len(self._levels) <= self.deviations:
            self._levels.append(_successors(prefix, bounds))


def _successors(prefix: Prefix, bounds: Sequence[int]) -> Iterator[Prefix]:
    """The schedules that go on like this one and deviate once more."""
    for place in range(len(prefix), len(bounds)):
        zeros = (0,) * (place - len(prefix))
        for value in range(1, bounds[place]):
            yield (*prefix, *zeros, value)


@attrs.frozen(kw_only=True)
class Failure:
    """The first schedule that broke something; `scenario` replays it."""

    violations: list[Violation]
    scenario: Scenario


@attrs.define(kw_only=True)
class Exploration:
    """What a search found. `logs` counts the different logs that its schedules ended with."""

    deviations: int
    schedules: int = 0
    gates: int = 0
    end: str = "exhausted"  #: or `budget reached`, `stopped early`, `broken`
    failure: Failure | None = None
    _logs: dict[bytes, None] = attrs.field(factory=dict)

    @property
    def logs(self) -> int:
        """How many different logs the schedules ended with."""
        return len(self._logs)

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        violations = [] if self.failure is None else self.failure.violations
        return {
            "end": self.end,
            "deviations": self.deviations,
            "schedules": self.schedules,
            "gates": self.gates,
            "logs": self.logs,
            "violations": [violation.as_json() for violation in violations],
        }

    def __str__(self) -> str:
        facts = f"d = {self.deviations}, {self.schedules} schedules, {self.logs} different logs"
        return f"{self.end}, {facts}"


def explore(
    scenario: Scenario,
    *,
    deviations: int,
    schedules_max: int,
    checks: Sequence[Check] = (),
    told: Callable[[Exploration], bool] = lambda found: True,
) -> Exploration:
    """Run the schedules and hold each to the invariants and `checks`, up to the first that breaks one.

    The other streams are drawn as the scenario's own tape says. `told` returning False stops the search.
    """
    found = Exploration(deviations=deviations)
    frontier = Frontier(deviations)
    explorer = _Explorer(scenario, found, checks)
    while (prefix := frontier.next()) is not None:
        if found.schedules >= schedules_max:
            found.end = "budget reached"
            break
        frontier.ran(prefix, explorer.run(prefix))
        if found.failure is not None:
            found.end = "broken"
            break
        if not told(found):
            found.end = "stopped early"
            break
    return found


class _Explorer:
    """Runs schedules of one scenario, and keeps what came of them."""

    def __init__(self, scenario: Scenario, found: Exploration, checks: Sequence[Check]) -> None:
        # What the file expects is expected of its own order, not of every one.
        self._scenario = attrs.evolve(scenario, expect=())
        self._found = found
        self._checks = checks
        self._tape = scenario.tape or TapeSpec()

    def run(self, prefix: Prefix) -> list[int]:
        """Run and judge one; the bounds of its draws."""
        others: dict[str, Sequence[int | Draw]] = attrs.asdict(self._tape)
        tape = Tape.replay({**others, STREAM: prefix})
        run = World(self._scenario, tape).run()
        try:
            record = Record(run)
            violations = check_invariants(record)
            violations += [violation for check in self._checks for violation in check(record)]
            self._note(record)
        finally:
            run.close()
        if violations:
            whole = with_tape(self._scenario, tape, dict.fromkeys(STREAMS, 0))
            self._found.failure = Failure(violations=violations, scenario=whole)
        drawn = tape.draws[STREAM]
        replayed = tuple(draw.value for draw in drawn[: len(prefix)])
        assert replayed == prefix, f"the run isn't reproducible: {replayed} was drawn instead of {prefix}"
        return [draw.bound for draw in drawn]

    def _note(self, record: Record) -> None:
        self._found.schedules += 1
        self._found.gates += record.run.gates
        self._found._logs[_digest(record)] = None


def _digest(record: Record) -> bytes:
    """A digest of the final logs; ids and times aside, which differ in any two orders."""
    digest = hashlib.blake2b(digest_size=16)
    for session_id in record.sessions():
        digest.update("\n".join([session_id, *(row.type for row in record.events(session_id))]).encode())
    return digest.digest()
