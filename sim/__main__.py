"""`python -m sim`: run scenario files through the simulator, and check them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.text import Text

from sim.cli.ablate import ablate
from sim.cli.demo import demo
from sim.cli.explore import explore
from sim.cli.from_log import from_log
from sim.cli.fuzz import fuzz
from sim.cli.input import BadInput, project_option
from sim.cli.matrix import matrix
from sim.cli.output import count, echo_json, violation_lines
from sim.cli.replay import replay
from sim.cli.report import report
from sim.cli.shrink import shrink
from sim.determinism import other_process
from sim.patience import patience
from sim.project import find_project
from sim.run import Result, run_scenario
from sim.scenario import Problem, Scenario, ScenarioError, check_scenario, load_scenario
from sim.tape import Tape

HELD, BROKEN, BAD_INPUT = 0, 1, 2

Paths = tuple[Path, ...]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run Fencepost's engine in a deterministic world, and say what held.

    Begin with `run FILE`; docs/simulator.md tells how to think in it. Each command takes --json.

    Exit status: 0 all held, 1 something broke, 2 bad input.
    """


@main.command(short_help="Run scenario files, and judge each.")
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
@project_option
def run(paths: Paths, as_json: bool, seed: int | None, check_determinism: bool, project: str | None) -> None:
    """Run scenario files, or all of a folder's, and judge each by its expectations and the invariants.

    Ctrl-C keeps what was found so far.

    Exit status: 0 all held, 1 something broke, 2 bad input.
    """
    scenarios = _load(_files(paths))
    out = Console(highlight=False, soft_wrap=True)
    results: list[Result] = []
    if not as_json:
        out.print(Text(f"{'':6} {'gates':>11} {'true time':>10} digest   scenario", style="dim"))
    make_tape = None if seed is None else lambda: Tape.seeded(seed)
    made = find_project(project)
    with (
        other_process(project) if check_determinism else contextlib.nullcontext() as other,
        patience("run", len(scenarios)) as waiting,
    ):
        for scenario in scenarios:
            if not waiting.told(len(results)):
                break
            result = run_scenario(scenario, make_tape, check_determinism=check_determinism, project=made)
            if other is not None:
                differs = other.differs(scenario, result.entries, seed)
                result = attrs.evolve(result, violations=[*result.violations, *differs])
            results.append(result)
            if not as_json:
                _print(out, result)
    broken = sum(result.verdict == "broken" for result in results)
    if as_json:
        echo_json([result.as_json() for result in results])
    else:
        gates = sum(result.gates for result in results)
        left = len(scenarios) - len(results)
        stopped = f", stopped early: {left} not run" if left else ""
        out.print(f"{len(results) - broken} held, {broken} broken, {gates} gates{stopped}")
    sys.exit(BROKEN if broken else HELD)


@main.command(short_help="Validate scenario files without running them.")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print a list of problems instead of lines.")
def check(paths: Paths, as_json: bool) -> None:
    """Validate scenario files, or all of a folder's, without running them.

    Exit status: 0 there is no problem, 2 there are some.
    """
    files = _files(paths)
    problems = [problem for path in files for problem in check_scenario(path)]
    if as_json:
        echo_json([_problem_json(problem) for problem in problems])
    else:
        for problem in problems:
            click.echo(str(problem))
        click.echo(f"{count(len(files), 'file')}, {count(len(problems), 'problem')}")
    sys.exit(BAD_INPUT if problems else HELD)


def _files(paths: Paths) -> list[Path]:
    """The scenario files that the paths name, folders expanded and sorted."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.rglob("*.toml"))
            if not inside:
                raise BadInput(f"{path}: no scenario file (*.toml) in this folder")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise BadInput(f"{path}: there is no such file or folder")
    return list(dict.fromkeys(found))


def _load(paths: Sequence[Path]) -> list[Scenario]:
    """All of the files, or a refusal that tells every problem of every one."""
    found: list[Scenario] = []
    wrong: list[str] = []
    for path in paths:
        try:
            found.append(load_scenario(path))
        except ScenarioError as exc:
            wrong.append(str(exc))
    if wrong:
        raise BadInput("\n".join(wrong))
    return found


def _print(out: Console, result: Result) -> None:
    mark = Text("held  ", style="green") if result.verdict == "held" else Text("BROKEN", style="bold red")
    facts = f"{result.gates:>5} gates {result.virtual_s:>8.1f} s {result.digest[:8]}"
    out.print(mark, facts, Text(result.scenario.name, style="bold"))
    for violation in result.violations:
        sentence, *rest = violation_lines([violation], indent="       ")
        out.print(Text(sentence))
        for line in rest:
            out.print(Text(line, style="dim"))


def _problem_json(problem: Problem) -> dict[str, object]:
    return {
        "file": str(problem.file),
        "line": problem.line,
        "key": problem.key,
        "message": problem.message,
        "hint": problem.hint,
    }


main.add_command(ablate)
main.add_command(demo)
main.add_command(explore)
main.add_command(from_log)
main.add_command(fuzz)
main.add_command(matrix)
main.add_command(replay)
main.add_command(report)
main.add_command(shrink)

if __name__ == "__main__":
    main()
