"""Explores the schedules of a small scenario: every order of its tasks that deviates from first in, first out
at most so many times.

Bounding deviations keeps the search finite and puts the likely faults first: most faults of order need one or
two late tasks ("delay bounding": Emmi, Qadeer and Rakamaric, POPL 2011). A schedule is the list of its draws
up to the last deviation, and its successors deviate once more, later on.

With reduction (`sim.explore.states`), orders that come to the same aren't run: the steps between gates have
footprints, and those of different nodes mostly commute. The outcomes that it reaches are those of the search
without, for every bound, as far as footprints are complete; each run is held to what they foretold, and tests
compare the sets. A check that compares sessions with each other sees orders that footprints don't keep apart.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence

import attrs

from engine.records import Claim
from sim.checks import check_invariants
from sim.explore.states import Prefix, Search
from sim.explore.steps import Step
from sim.explore.watch import SCHEDULE, Observer, noting_tape
from sim.project import MakeProject, Project
from sim.record import Record
from sim.run import Check
from sim.saved import with_tape
from sim.scenario import Scenario, TapeSpec
from sim.tape import STREAMS, Draw
from sim.verdict import Violation
from sim.world import World

FRESH_ID = re.compile(r"([a-z]+_[\w-]+\.\d+)_[a-z2-7]{8}_\d+")
"""An id that a simulated node drew; what comes first says which kind it is, and which node drew it."""


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
    """What a search found. `outcomes` tells what came of its runs, ids and times aside; `pruned` counts the
    deviations that weren't run, since they come to the same as ones that were."""

    deviations: int
    reduction: bool = True
    schedules: int = 0
    pruned: int = 0
    gates: int = 0
    end: str = "exhausted"  #: or `budget reached`, `stopped early`, `broken`
    failure: Failure | None = None
    outcomes: dict[str, None] = attrs.field(factory=dict, repr=False)
    _logs: dict[bytes, None] = attrs.field(factory=dict, repr=False)

    @property
    def logs(self) -> int:
        """How many different logs the schedules ended with, judged by the types of their events."""
        return len(self._logs)

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        violations = [] if self.failure is None else self.failure.violations
        return {
            "end": self.end,
            "deviations": self.deviations,
            "reduction": self.reduction,
            "schedules": self.schedules,
            "pruned": self.pruned,
            "gates": self.gates,
            "logs": self.logs,
            "outcomes": len(self.outcomes),
            "violations": [violation.as_json() for violation in violations],
        }

    def __str__(self) -> str:
        how = f", {self.pruned} pruned" if self.reduction else " without reduction"
        return (
            f"{self.end}, d = {self.deviations}, {self.schedules} schedules{how}, {self.logs} different logs"
        )


def explore(
    scenario: Scenario,
    *,
    deviations: int,
    schedules_max: int,
    reduction: bool = True,
    checks: Sequence[Check] = (),
    project: MakeProject = Project,
    told: Callable[[Exploration], bool] = lambda found: True,
) -> Exploration:
    """Run the schedules and hold each to the invariants, `checks`, and those of a project of the user's own,
    up to the first that breaks one.

    The other streams are drawn as the scenario's own tape says. `told` returning False stops the search.
    """
    found = Exploration(deviations=deviations, reduction=reduction)
    explorer = _Explorer(scenario, found, checks, project, schedules_max, told)
    if not reduction:
        _run_each(Frontier(deviations), explorer)
        return found

    def run(prefix: Prefix) -> Sequence[Step] | None:
        found.pruned = search.merged
        return explorer.run(prefix)

    search = Search(deviations, run)
    search.whole()
    found.pruned = search.merged
    return found


def _run_each(frontier: Frontier, explorer: _Explorer) -> None:
    while (prefix := frontier.next()) is not None:
        steps = explorer.run(prefix)
        if steps is None:
            return
        frontier.ran(prefix, [step.bound for step in steps if step.bound > 1])


class _Explorer:
    """Runs schedules of one scenario, and keeps what came of them."""

    def __init__(
        self,
        scenario: Scenario,
        found: Exploration,
        checks: Sequence[Check],
        project: MakeProject,
        schedules_max: int,
        told: Callable[[Exploration], bool],
    ) -> None:
        # What the file expects is expected of its own order, not of every one.
        self._scenario = attrs.evolve(scenario, expect=())
        self._found = found
        self._checks = checks
        self._project = project
        self._schedules_max = schedules_max
        self._told = told
        self._tape = scenario.tape or TapeSpec()
        self._over = False

    def run(self, prefix: Prefix) -> Sequence[Step] | None:
        """Run and judge one; its steps, or None if the search is over, as `end` says."""
        found = self._found
        if self._over:
            return None
        if found.schedules >= self._schedules_max:
            found.end = "budget reached"
            return None
        steps = self._judged(prefix)
        if found.failure is not None:
            found.end, self._over = "broken", True
        elif not self._told(found):
            found.end, self._over = "stopped early", True
        return None if self._over else steps

    def _judged(self, prefix: Prefix) -> list[Step]:
        others: dict[str, Sequence[int | Draw]] = attrs.asdict(self._tape)
        tape = noting_tape(others)
        own = self._project()
        world = World(self._scenario, tape, project=own)
        observer = Observer(world, tape, prefix)
        run = world.run()
        try:
            steps = observer.steps()
            record = Record(run)
            violations = own.judge(record, check_invariants(record))
            violations += [violation for check in self._checks for violation in check(record)]
            self._note(record, violations)
        finally:
            run.close()
        if violations:
            whole = with_tape(self._scenario, tape, dict.fromkeys(STREAMS, 0))
            self._found.failure = Failure(violations=violations, scenario=whole)
        replayed = tuple(draw.value for draw in tape.draws[SCHEDULE][: len(prefix)])
        assert replayed == prefix, f"the run isn't reproducible: {replayed} was drawn instead of {prefix}"
        return steps

    def _note(self, record: Record, violations: Sequence[Violation]) -> None:
        self._found.schedules += 1
        self._found.gates += record.run.gates
        self._found._logs[_digest(record)] = None
        self._found.outcomes[outcome(record, violations)] = None


def _digest(record: Record) -> bytes:
    """A digest of the final logs; ids and times aside, which differ in any two orders."""
    digest = hashlib.blake2b(digest_size=16)
    for session_id in record.sessions():
        digest.update("\n".join([session_id, *(row.type for row in record.events(session_id))]).encode())
    return digest.digest()


def outcome(record: Record, violations: Sequence[Violation]) -> str:
    """What came of a run, as a digest: the rules that broke, each session's events with their data, and the
    claims that are left. Times are left out, and ids are numbered as they come."""
    reader = record.run.database.reader()
    told: dict[str, object] = {
        "broken": sorted({f"{one.rule} {one.session} {one.node}" for one in violations})
    }
    for session_id in record.sessions():
        rows = [[row.seq, row.type, row.execution_id, _text(row.data)] for row in record.events(session_id)]
        told[session_id] = [rows, _claim(reader.claim(session_id))]
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0], f"{match[1]}#{len(numbers)}")

    text = FRESH_ID.sub(number, json.dumps(told))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _claim(claim: Claim | None) -> object:
    return None if claim is None else [claim.execution_id, claim.owner_id, claim.phase.value]
