"""`python -m sim matrix`: a scenario interrupted at each of its gates, in each way."""

from __future__ import annotations

import click

from sim.cli.input import SCENARIO, project_option, refuse_without_engine
from sim.cli.output import echo_json
from sim.matrix import Matrix, grid, run_matrix
from sim.patience import patience
from sim.project import find_project
from sim.scenario import Scenario

BROKEN = 1


@click.command(short_help="Interrupt a scenario at every gate, in every way.")
@click.argument("scenario", metavar="FILE", type=SCENARIO)
@click.option("--json", "as_json", is_flag=True, help="Print one object instead of the grid.")
@project_option
@click.pass_context
def matrix(context: click.Context, scenario: Scenario, as_json: bool, project: str | None) -> None:
    """Interrupt a scenario at each of its gates in each way, and check every invariant after recovery.

    A dot held, an X broke, a blank can't apply. Ctrl-C keeps what was found so far.

    Exit status: 0 nothing broke, 1 something did, 2 bad input.
    """
    refuse_without_engine(scenario, "interrupt")
    with patience(scenario.name) as waiting:
        found = run_matrix(scenario, waiting.told, project=find_project(project))
    if as_json:
        echo_json(found.as_json())
    else:
        _print(found)
    context.exit(BROKEN if found.failures else 0)


def _print(found: Matrix) -> None:
    for line in grid(found):
        click.echo(line)
    for cell in found.failures:
        for violation in cell.violations or ():
            click.echo(f"X gate {cell.place.number} {cell.mode}: {violation}")
    facts = found.as_json()
    click.echo(f"windows that occurred: {', '.join(found.windows) or 'none'}")
    stopped = "" if found.complete else f", stopped early: {len(found.cells)} were tried"
    click.echo(
        f"{facts['gates']} gates, {facts['cells']} cells, {facts['not_applicable']} can't apply, "
        f"{facts['failures']} broken{stopped}"
    )
