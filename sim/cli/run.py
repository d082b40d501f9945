"""`python -m sim run`: scenario files, played and judged."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.text import Text

from sim.cli.input import files_of, load_all, project_option
from sim.cli.output import echo_json, violation_lines
from sim.determinism import other_process
from sim.patience import patience
from sim.project import find_project
from sim.run import Result, run_scenario
from sim.tape import Tape

HELD, BROKEN = 0, 1


@click.command(short_help="Run scenario files, and judge each.")
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
def run(
    paths: tuple[Path, ...], as_json: bool, seed: int | None, check_determinism: bool, project: str | None
) -> None:
    """Run scenario files, or all of a folder's, and judge each by its expectations and the invariants.

    Ctrl-C keeps what was found so far.

    Exit status: 0 all held, 1 something broke, 2 bad input.
    """
    scenarios = load_all(files_of(paths))
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


def _print(out: Console, result: Result) -> None:
    mark = Text("held  ", style="green") if result.verdict == "held" else Text("BROKEN", style="bold red")
    facts = f"{result.gates:>5} gates {result.virtual_s:>8.1f} s {result.digest[:8]}"
    out.print(mark, facts, Text(result.scenario.name, style="bold"))
    for violation in result.violations:
        sentence, *rest = violation_lines([violation], indent="       ")
        out.print(Text(sentence))
        for line in rest:
            out.print(Text(line, style="dim"))
