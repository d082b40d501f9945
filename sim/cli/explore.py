"""`python -m sim explore`: every schedule of a small scenario, up to a number of deviations."""

from __future__ import annotations

from pathlib import Path

import attrs
import click

from sim.cli.input import SCENARIO, project_option, refuse_without_engine, unless_unwritable
from sim.cli.output import again, echo_json, violation_lines
from sim.explore.search import Exploration, Failure
from sim.explore.search import explore as explore_schedules
from sim.patience import patience
from sim.project import find_project
from sim.saved import dump, found_by
from sim.scenario import Scenario

BROKEN = 1


@click.command(short_help="Run every order of a scenario's tasks, up to a bound.")
@click.argument("scenario", metavar="FILE", type=SCENARIO)
@click.option(
    "--deviations",
    "-d",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="How often a schedule may deviate from first in, first out.",
)
@click.option(
    "--schedules-max",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Stop after so many.",
)
@click.option(
    "--no-reduction",
    is_flag=True,
    help="Run orders, too, that differ from one that was run only in steps that commute.",
)
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    help="File for the first failure; default: NAME.broken.toml here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object instead of lines.")
@project_option
@click.pass_context
def explore(
    context: click.Context,
    scenario: Scenario,
    deviations: int,
    schedules_max: int,
    no_reduction: bool,
    save: Path | None,
    as_json: bool,
    project: str | None,
) -> None:
    """Run every order of a scenario's tasks that deviates at most so often, and check the invariants.

    It says `exhausted` only if no further such schedule could come to something else. The first failure ends
    the search and is saved with its tape. Ctrl-C keeps what was found so far.

    Exit status: 0 nothing broke, 1 something did, 2 bad input.
    """
    refuse_without_engine(scenario, "explore")
    with patience(scenario.name, schedules_max) as waiting:
        found = explore_schedules(
            scenario,
            deviations=deviations,
            schedules_max=schedules_max,
            reduction=not no_reduction,
            project=find_project(project),
            told=lambda so_far: waiting.told(so_far.schedules),
        )
    saved = None if found.failure is None else _save(found.failure, scenario, save)
    if as_json:
        echo_json({**found.as_json(), "saved": saved})
    else:
        _print(found, saved, project)
    context.exit(0 if found.failure is None else BROKEN)


def _save(failure: Failure, scenario: Scenario, path: Path | None) -> str:
    path = path or Path(f"{scenario.name}.broken.toml")
    proves = found_by("exploring schedules", failure.violations[0])
    with unless_unwritable():
        path.write_text(dump(attrs.evolve(failure.scenario, proves=proves)), encoding="utf-8")
    return str(path)


def _print(found: Exploration, saved: str | None, project: str | None) -> None:
    if found.failure is not None:
        click.echo("BROKEN")
        for line in violation_lines(found.failure.violations):
            click.echo(line)
    click.echo(str(found))
    if saved is not None:
        click.echo(f"saved {saved}; {again('replay', saved, project)}")
