"""Runs one scenario and judges it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import attrs

from sim.checks import check_invariants
from sim.expectations import check_expectations
from sim.project import MakeProject, Project
from sim.record import Record
from sim.saved import tape_of
from sim.scenario import Scenario
from sim.tape import Tape
from sim.trace import Entry, explain, first_difference
from sim.verdict import Violation
from sim.world import Run, World

WINDOWS = ("before_commit", "after_commit", "notify", "after_notify")


@attrs.frozen(kw_only=True)
class Result:
    """One scenario's outcome. `windows` are the named windows that occurred, `window_events` where."""

    scenario: Scenario
    violations: list[Violation]
    digest: str
    gates: int
    windows: list[str]
    window_events: dict[str, list[str]]
    virtual_s: float
    wall_s: float
    entries: list[Entry] = attrs.field(repr=False)

    @property
    def verdict(self) -> str:
        """`held` or `broken`."""
        return "broken" if self.violations else "held"

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "name": self.scenario.name,
            "file": self.scenario.file,
            "proves": self.scenario.proves,
            "verdict": self.verdict,
            "violations": [violation.as_json() for violation in self.violations],
            "digest": self.digest,
            "gates": self.gates,
            "windows": self.windows,
            "window_events": self.window_events,
            "virtual_s": self.virtual_s,
            "wall_s": self.wall_s,
        }


Check = Callable[[Record], Iterable[Violation]]
"""An invariant of a project's own: what it finds wrong in a finished run."""


def run_scenario(
    scenario: Scenario,
    make_tape: Callable[[], Tape] | None = None,
    *,
    check_determinism: bool = False,
    project: MakeProject = Project,
) -> Result:
    """Run a scenario and judge it; with `check_determinism`, run it twice and compare.

    Without `make_tape` it runs from its own recorded tape, or from the one of zeros. `project` makes what a
    project of the user's own brings, anew for each run.
    """
    make_tape = make_tape or (lambda: tape_of(scenario))
    result = judge(scenario, make_tape(), project=project)
    if not check_determinism:
        return result
    again = _twice(scenario, make_tape, result.entries, project)
    return attrs.evolve(result, violations=[*result.violations, *again])


def judge(
    scenario: Scenario, tape: Tape, checks: Sequence[Check] = (), *, project: MakeProject = Project
) -> Result:
    """Run a scenario from a tape, and hold it to its expectations, the invariants, `checks`, and those that
    the project brings which `project` makes for this run."""
    began = time.perf_counter()
    own = project()
    run = World(scenario, tape, project=own).run()
    try:
        record = Record(run)
        violations = [*check_invariants(record), *_unfired(run), *check_expectations(record)]
        violations = own.judge(record, violations)
        violations += [violation for check in checks for violation in check(record)]
        seen = run.ledger.windows
        return Result(
            scenario=scenario,
            violations=violations,
            digest=run.trace.digest(),
            gates=run.gates,
            windows=[window for window in WINDOWS if any(window in found for found in seen.values())],
            window_events={kind: [w for w in WINDOWS if w in found] for kind, found in sorted(seen.items())},
            virtual_s=run.virtual_ms / 1000,
            wall_s=round(time.perf_counter() - began, 4),
            entries=run.trace.entries,
        )
    finally:
        run.close()


def _unfired(run: Run) -> list[Violation]:
    """A file that expects something proves nothing if its actions never happened; a generated world expects
    nothing, and its triggers may well miss."""
    if not run.scenario.expect:
        return []
    return [
        Violation(rule="expect", sentence=f"{name} never happened: the moment it waits for never came")
        for name in run.unfired
    ]


def _twice(
    scenario: Scenario, make_tape: Callable[[], Tape], first: list[Entry], project: MakeProject
) -> list[Violation]:
    again = World(scenario, make_tape(), project=project()).run()
    try:
        difference = first_difference(first, again.trace.entries)
    finally:
        again.close()
    if difference is None:
        return []
    return [Violation(rule="determinism", sentence=f"a second run differs: {explain(difference)}")]
