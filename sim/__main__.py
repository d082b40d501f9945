"""`python -m sim`: run scenario files through the simulator, and check them."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from sim.cli_ablate import ablate
from sim.cli_explore import explore
from sim.cli_from_log import from_log
from sim.cli_report import report
from sim.determinism import other_process
from sim.fuzz import Campaign, broken_rules, campaign
from sim.matrix import Matrix, grid, run_matrix
from sim.patience import stopped_by_ctrl_c
from sim.run import Result, run_scenario
from sim.saved import dump
from sim.scenario import Problem, Scenario, ScenarioError, check_scenario, load_scenario
from sim.shrink import shrink as shrink_scenario
from sim.sometimes import SOMETIMES
from sim.tape import Tape

HELD, BROKEN, BAD_INPUT = 0, 1, 2

Paths = tuple[Path, ...]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run Fencepost's engine in a deterministic world, and say what held.

    Exit status: 0 all held, 1 something broke, 2 bad input.
    """


@main.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects instead of lines.")
@click.option(
    "--seed",
    type=int,
    help="Fill the tape from this seed. Default: the file's own tape, or first in, first out.",
)
@click.option(
    "--check-determinism",
    is_flag=True,
    help="Run each again, here and in a process with another hash order, and compare every step.",
)
def run(paths: Paths, as_json: bool, seed: int | None, check_determinism: bool) -> None:
    """Run scenario files, or all of a folder's, and judge each by its expectations and the invariants."""
    scenarios = [_load(path) for path in _files(paths)]
    out = Console(highlight=False, soft_wrap=True)
    results: list[Result] = []
    if not as_json:
        out.print(Text(f"{'':6} {'gates':>11} {'true time':>10} digest   scenario", style="dim"))
    make_tape = None if seed is None else lambda: Tape.seeded(seed)
    with other_process() if check_determinism else contextlib.nullcontext() as other:
        for scenario in scenarios:
            result = run_scenario(scenario, make_tape, check_determinism=check_determinism)
            if other is not None:
                differs = other.differs(scenario, result.entries, seed)
                result = attrs.evolve(result, violations=[*result.violations, *differs])
            results.append(result)
            if not as_json:
                _print(out, result)
    broken = sum(result.verdict == "broken" for result in results)
    if as_json:
        click.echo(json.dumps([result.as_json() for result in results], indent=2))
    else:
        gates = sum(result.gates for result in results)
        out.print(f"{len(results) - broken} held, {broken} broken, {gates} gates")
    sys.exit(BROKEN if broken else HELD)


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one object instead of the grid.")
def matrix(path: Path, as_json: bool) -> None:
    """Interrupt a scenario at each of its gates in each way, and check every invariant after recovery.

    A dot held, an X broke, a blank can't apply. Ctrl-C keeps what was found so far.
    """
    scenario = _load(_files((path,))[0])
    if scenario.config_refused is not None:
        _refuse(f"{path}: this scenario expects that no engine opens, so there is nothing to interrupt")
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(scenario.name, total=None)
        with stopped_by_ctrl_c() as stopped:

            def told(done: int, of: int) -> bool:
                bar.update(task, completed=done, total=of)
                return not stopped()

            found = run_matrix(scenario, told)
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        _print_matrix(found)
    sys.exit(BROKEN if found.failures else HELD)


@main.command()
@click.option("--seeds", type=click.IntRange(min=1), help="How many; 1000 unless --seconds is given.")
@click.option("--from", "first", type=click.IntRange(min=0), default=0, show_default=True, help="The first.")
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after so long.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option("--save", type=click.Path(path_type=Path), help="Folder for what fails, shrunk.")
@click.option("--json", "as_json", is_flag=True, help="Print one object instead of the tables.")
def fuzz(
    seeds: int | None, first: int, seconds: float | None, jobs: int, save: Path | None, as_json: bool
) -> None:
    """Run generated worlds, a seed each, and check every invariant. Ctrl-C keeps what was found so far.

    It prints which faults were really applied and which rare states were reached: an empty campaign must not
    look like a clean one. From 5000 seeds on, a rare state that was never reached fails the campaign.
    """
    if seeds is None and seconds is None:
        seeds = 1_000
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("fuzz", total=seeds)
        with stopped_by_ctrl_c() as stopped:

            def told(so_far: Campaign) -> bool:
                bar.update(task, completed=so_far.seeds)
                return not stopped()

            found = campaign(seeds=seeds, first=first, seconds=seconds, jobs=jobs, save=save, told=told)
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        _print_campaign(found)
    sys.exit(BROKEN if found.broken else HELD)


def _print_campaign(found: Campaign) -> None:
    facts = found.as_json()
    click.echo(
        f"{found.seeds} seeds in {found.seconds:.1f} s ({facts['runs_per_s']} runs/s), per run "
        f"{facts['gates_per_run']} gates and {facts['events_per_run']} events"
        f"{'' if found.complete else ', stopped early'}"
    )
    click.echo("faults applied:")
    for kind, count in sorted(found.faults_applied.items()):
        click.echo(f"  {count:>8} {kind}")
    click.echo("sometimes:")
    for name in SOMETIMES:
        click.echo(f"  {found.sometimes[name]:>8} {name}")
    for failure in found.failures:
        click.echo(f"BROKEN seed {failure.seed} ({failure.scheduler})")
        for violation in failure.violations:
            click.echo(f"  {violation}")
    for path in found.saved:
        click.echo(f"saved {path}; replay it with: python -m sim run {path}")
    if found.broken and found.unreached and not found.failures:
        click.echo(f"never reached: {'; '.join(found.unreached)}")


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Where to write; default: print it.")
def shrink(path: Path, output: Path | None) -> None:
    """Make a failing scenario small: what isn't needed for the same rules to break is taken away."""
    scenario = _load(_files((path,))[0])
    rules = broken_rules(scenario)
    if not rules:
        click.echo(f"{path}: every invariant held, so there is nothing to shrink", err=True)
        sys.exit(BAD_INPUT)
    small, runs = shrink_scenario(scenario, lambda candidate: bool(rules & broken_rules(candidate)))
    click.echo(f"{runs} runs, still broken: {', '.join(sorted(rules))}", err=True)
    if output is None:
        click.echo(dump(small))
    else:
        output.write_text(dump(small))
    sys.exit(BROKEN)


def _print_matrix(found: Matrix) -> None:
    for line in grid(found):
        click.echo(line)
    for cell in found.failures:
        for violation in cell.violations or ():
            click.echo(f"gate {cell.place.number} {cell.mode}: {violation}")
    facts = found.as_json()
    click.echo(f"windows that occurred: {', '.join(found.windows) or 'none'}")
    click.echo(
        f"{facts['gates']} gates, {facts['cells']} cells, {facts['not_applicable']} can't apply, "
        f"{facts['failures']} broken{'' if found.complete else ' (stopped early)'}"
    )


@main.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print a list of problems instead of lines.")
def check(paths: Paths, as_json: bool) -> None:
    """Validate scenario files without running them."""
    files = _files(paths)
    problems = [problem for path in files for problem in check_scenario(path)]
    if as_json:
        click.echo(json.dumps([_problem_json(problem) for problem in problems], indent=2))
    else:
        for problem in problems:
            click.echo(str(problem))
        click.echo(f"{_count(len(files), 'file')}, {_count(len(problems), 'problem')}")
    sys.exit(BAD_INPUT if problems else HELD)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _files(paths: Paths) -> list[Path]:
    """The scenario files that the paths name, folders expanded and sorted."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.rglob("*.toml"))
            if not inside:
                _refuse(f"{path}: no scenario file (*.toml) in this folder")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            _refuse(f"{path}: there is no such file or folder")
    return list(dict.fromkeys(found))


def _load(path: Path) -> Scenario:
    try:
        return load_scenario(path)
    except ScenarioError as exc:
        _refuse(str(exc))
        raise AssertionError from exc


def _refuse(message: str) -> None:
    click.echo(message, err=True)
    sys.exit(BAD_INPUT)


def _print(out: Console, result: Result) -> None:
    mark = Text("held  ", style="green") if result.verdict == "held" else Text("BROKEN", style="bold red")
    facts = f"{result.gates:>5} gates {result.virtual_s:>8.1f} s {result.digest[:8]}"
    out.print(mark, facts, Text(result.scenario.name, style="bold"))
    for violation in result.violations:
        out.print(Text(f"       {violation}"))
        for entry in violation.around:
            out.print(Text(f"         {entry}", style="dim"))


def _problem_json(problem: Problem) -> dict[str, object]:
    return {
        "file": str(problem.file),
        "line": problem.line,
        "key": problem.key,
        "message": problem.message,
        "hint": problem.hint,
    }


main.add_command(ablate)
main.add_command(explore)
main.add_command(from_log)
main.add_command(report)

if __name__ == "__main__":
    main()
