"""`python -m sim check`: scenario files, read and not run."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sim.cli.input import files_of
from sim.cli.output import count, echo_json
from sim.scenario import Problem, check_scenario

HELD, BAD_INPUT = 0, 2


@click.command(short_help="Validate scenario files without running them.")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print a list of problems instead of lines.")
def check(paths: tuple[Path, ...], as_json: bool) -> None:
    """Validate scenario files, or all of a folder's, without running them.

    Exit status: 0 there is no problem, 2 there are some.
    """
    files = files_of(paths)
    problems = [problem for path in files for problem in check_scenario(path)]
    if as_json:
        echo_json([_problem_json(problem) for problem in problems])
    else:
        for problem in problems:
            click.echo(str(problem))
        click.echo(f"{count(len(files), 'file')}, {count(len(problems), 'problem')}")
    sys.exit(BAD_INPUT if problems else HELD)


def _problem_json(problem: Problem) -> dict[str, object]:
    return {
        "file": str(problem.file),
        "line": problem.line,
        "key": problem.key,
        "message": problem.message,
        "hint": problem.hint,
    }
