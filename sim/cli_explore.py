"""`python -m sim explore`: every schedule of a small scenario, up to a number of deviations."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.progress import Progress

from sim.cli_input import SCENARIO, BadInput, unless_unwritable
from sim.explore import Exploration, Failure
from sim.explore import explore as explore_schedules
from sim.patience import stopped_by_ctrl_c
from sim.saved import dump
from sim.scenario import Scenario

BROKEN = 1


@click.command()
@click.argument("scenario", metavar="FILE", type=SCENARIO)
@click.option(
    "--deviations",
    "-d",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="How often a schedule may deviate from first in, first out.",
)
@click.option("--schedules-max", type=click.IntRange(min=1), default=10_000, show_default=True)
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    help="File for the first failure; default: NAME.broken.toml here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object instead of lines.")
@click.pass_context
def explore(
    context: click.Context,
    scenario: Scenario,
    deviations: int,
    schedules_max: int,
    save: Path | None,
    as_json: bool,
) -> None:
    """Run every order of a scenario's tasks that deviates at most so often, and check the invariants.

    It says `exhausted` only if there is no further such schedule. The first failure ends the search and is
    saved with its tape. Exit status: 0 nothing broke, 1 something did, 2 bad input.
    """
    if scenario.config_refused is not None:
        raise BadInput(f"{scenario.file}: this scenario expects that no engine opens: nothing to explore")
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(scenario.name, total=schedules_max)
        with stopped_by_ctrl_c() as stopped:

            def told(so_far: Exploration) -> bool:
                bar.update(task, completed=so_far.schedules)
                return not stopped()

            found = explore_schedules(scenario, deviations=deviations, schedules_max=schedules_max, told=told)
    saved = None if found.failure is None else _save(found.failure, scenario, save)
    if as_json:
        click.echo(json.dumps({**found.as_json(), "saved": saved}, indent=2))
    else:
        _print(found, saved)
    context.exit(0 if found.failure is None else BROKEN)


def _save(failure: Failure, scenario: Scenario, path: Path | None) -> str:
    path = path or Path(f"{scenario.name}.broken.toml")
    sentence = str(failure.violations[0]).replace("\n", " ")
    proves = f"Found by exploring schedules, and must hold: {sentence}"
    with unless_unwritable():
        path.write_text(dump(attrs.evolve(failure.scenario, proves=proves)), encoding="utf-8")
    return str(path)


def _print(found: Exploration, saved: str | None) -> None:
    if found.failure is not None:
        for violation in found.failure.violations:
            click.echo(f"BROKEN {violation}")
    click.echo(str(found))
    if saved is not None:
        click.echo(f"saved {saved}; replay it with: python -m sim run {saved}")
