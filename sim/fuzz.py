"""A fuzzing campaign: many generated worlds, each from one seed; what fails is shrunk and saved.

It counts which faults were really applied and which rare states were reached, so that an empty campaign can't
look like a clean one.
"""

from __future__ import annotations

import collections
import concurrent.futures
import multiprocessing
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from sim.checks import check_invariants
from sim.generate.worlds import disturb, generate
from sim.patience import deaf_to_ctrl_c
from sim.project import Project, find_project
from sim.record import Record
from sim.saved import dump, found_by, lengths, tape_of, with_tape
from sim.scenario import Scenario
from sim.schedulers import scheduler_of, tape_for
from sim.shrink.search import shrink
from sim.sometimes import SOMETIMES, marks
from sim.verdict import Violation
from sim.world import World

CHUNK = 5
"""Seeds that one job takes at a time: few, as whoever stops a campaign waits for those under way."""

LOOK_S = 0.2
"""So often a campaign that waits for its jobs asks whether it is to go on."""

NAME_MAX = 40
"""Characters of a file's name that the names of its disturbed worlds begin with."""

MARKS_DEMANDED_FROM = 5_000
"""A campaign of so many seeds must have reached every rare state; a shorter one only says what it missed."""


@attrs.frozen(kw_only=True)
class Failure:
    """A seed whose run broke something, with its world and tape."""

    seed: int
    scheduler: str
    violations: list[Violation]
    scenario: Scenario


@attrs.define(kw_only=True)
class Campaign:
    """What a campaign found; `seeds` were run, `gates` and `events` are sums over them."""

    seeds: int = 0
    gates: int = 0
    events: int = 0
    seconds: float = 0.0
    faults_applied: collections.Counter[str] = attrs.field(factory=collections.Counter)
    sometimes: collections.Counter[str] = attrs.field(factory=collections.Counter)
    failures: list[Failure] = attrs.field(factory=list)
    saved: list[str] = attrs.field(factory=list)
    complete: bool = True
    marks_demanded: bool = True  #: one world alone may well never reach a rare state

    @property
    def unreached(self) -> list[str]:
        """The rare states that no run reached."""
        return [name for name in SOMETIMES if not self.sometimes[name]]

    @property
    def broken(self) -> bool:
        """Whether something failed, or a long campaign missed a rare state."""
        demanded = self.marks_demanded and self.seeds >= MARKS_DEMANDED_FROM
        return bool(self.failures) or (demanded and bool(self.unreached))

    def add(self, other: Campaign) -> None:
        """Take in what another part of the campaign found."""
        self.seeds += other.seeds
        self.gates += other.gates
        self.events += other.events
        self.faults_applied.update(other.faults_applied)
        self.sometimes.update(other.sometimes)
        self.failures += other.failures

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "seeds": self.seeds,
            "violations": [
                {
                    "seed": failure.seed,
                    "scheduler": failure.scheduler,
                    "violations": [violation.as_json() for violation in failure.violations],
                }
                for failure in self.failures
            ],
            "runs_per_s": round(self.seeds / self.seconds, 1) if self.seconds else 0.0,
            "gates_per_run": round(self.gates / self.seeds, 1) if self.seeds else 0.0,
            "events_per_run": round(self.events / self.seeds, 1) if self.seeds else 0.0,
            "faults_applied": dict(sorted(self.faults_applied.items())),
            "sometimes": {name: self.sometimes[name] for name in SOMETIMES},
            "saved": self.saved,
            "complete": self.complete,
        }


def run_seed(seed: int, project: str | None = None, base: Scenario | None = None) -> Campaign:
    """One world from one seed; `project` and `base` as for `campaign`."""
    found, own = Campaign(seeds=1), project_of(project)
    scheduler = scheduler_of(seed)
    tape = tape_for(seed, scheduler)
    if base is None:
        scenario = generate(tape, f"seed_{seed}", own.calls)
    else:
        # What the file expects is expected of its own run.
        scenario = disturb(tape, attrs.evolve(base, expect=()), f"{base.name[:NAME_MAX]}_seed_{seed}")
    since = lengths(tape)
    run = World(scenario, tape, project=own).run()
    try:
        record = Record(run)
        violations = own.judge(record, check_invariants(record))
        found.gates = run.gates
        found.events = sum(len(happened) for happened in record.happened.values())
        # one that struck several nodes at once has a line for each of them
        strikes = {(fault.kind, fault.name, fault.moment.entry): None for fault in run.ledger.faults}
        found.faults_applied.update(kind for kind, _, _ in strikes)
        found.sometimes.update(marks(record))
    finally:
        run.close()
    if violations:
        whole = with_tape(scenario, tape, since)
        found.failures.append(Failure(seed=seed, scheduler=scheduler, violations=violations, scenario=whole))
    return found


def run_chunk(first: int, count: int, project: str | None = None, base: Scenario | None = None) -> Campaign:
    """Some seeds, one after another."""
    found = Campaign()
    for seed in range(first, first + count):
        found.add(run_seed(seed, project, base))
    return found


def project_of(name: str | None) -> Project:
    """What the project named `module:function` brings to one more run; nothing for None."""
    return find_project(name)()


def campaign(
    *,
    seeds: int | None,
    first: int,
    seconds: float | None,
    jobs: int,
    save: Path | None,
    told: Callable[[Campaign], bool] = lambda campaign: True,
    project: str | None = None,
    base: Scenario | None = None,
) -> Campaign:
    """Run until so many seeds are done or so many seconds have passed. `told` returning False stops it.

    Each seed makes a world of its own, or, with `base`, an order and more faults for that world.
    `project` names a function, `module:function`, that makes what a project of the user's own brings.
    """
    began = time.monotonic()
    found = Campaign(marks_demanded=base is None)
    for part in _parts(_chunks(first, seeds, CHUNK if jobs > 1 else 1), jobs, project, base):
        found.add(part)
        found.seconds = time.monotonic() - began
        if not told(found) or (seconds is not None and found.seconds >= seconds):
            found.complete = seeds is not None and found.seeds >= seeds
            break
    if save is not None:
        for failure in found.failures:
            found.saved.append(str(_save(failure, save, project, lambda: told(found))))
    return found


def _chunks(first: int, seeds: int | None, most: int) -> Iterator[tuple[int, int]]:
    done = 0
    while seeds is None or done < seeds:
        count = most if seeds is None else min(most, seeds - done)
        yield first + done, count
        done += count


def _parts(
    chunks: Iterator[tuple[int, int]], jobs: int, project: str | None, base: Scenario | None
) -> Iterator[Campaign]:
    """The chunks' results in order, computed by `jobs` processes."""
    if jobs <= 1:
        for first, count in chunks:
            yield run_chunk(first, count, project, base)
        return
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        waiting: collections.deque[concurrent.futures.Future[Campaign]] = collections.deque()
        try:
            for first, count in chunks:
                with deaf_to_ctrl_c():  # the first ones start the processes
                    waiting.append(pool.submit(run_chunk, first, count, project, base))
                if len(waiting) >= 2 * jobs:
                    yield from _awaited(waiting.popleft())
            while waiting:
                yield from _awaited(waiting.popleft())
        finally:
            pool.shutdown(cancel_futures=True)


def _awaited(part: concurrent.futures.Future[Campaign]) -> Iterator[Campaign]:
    """The part, and until it is there nothing, again and again."""
    while not concurrent.futures.wait((part,), LOOK_S).done:
        yield Campaign()
    yield part.result()


def _save(failure: Failure, folder: Path, project: str | None, told: Callable[[], bool]) -> Path:
    """Shrink a failure, as long as `told` allows it, and write it as a scenario file that replays it."""
    rules = {violation.rule for violation in failure.violations}
    small, _ = shrink(
        failure.scenario,
        lambda candidate: bool(rules & broken_rules(candidate, project)),
        told=lambda runs: told(),
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{small.name}.toml"
    path.write_text(dump(attrs.evolve(small, proves=found_by("fuzzing", failure.violations[0]))))
    return path


def broken_rules(scenario: Scenario, project: str | None = None) -> set[str]:
    """The rules that a run of the scenario's own tape breaks, those of `project` among them."""
    own = project_of(project)
    run = World(scenario, tape_of(scenario), project=own).run()
    try:
        record = Record(run)
        return {violation.rule for violation in own.judge(record, check_invariants(record))}
    finally:
        run.close()
