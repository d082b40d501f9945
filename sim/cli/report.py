"""`python -m sim report`: a run as one page to look at."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sim.cli.input import SCENARIO, project_option, unless_unwritable
from sim.cli.output import echo_json, violation_lines
from sim.project import MakeProject, find_project
from sim.report import Story, nearest_that_held, page, tell, trace_events
from sim.report.near import Near
from sim.saved import tape_of
from sim.scenario import Scenario
from sim.tape import Tape

BROKEN = 1


@click.command(short_help="Draw a run as one HTML page.")
@click.argument("scenario", metavar="FILE", type=SCENARIO)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), required=True, help="Where to write the page."
)
@click.option("--perfetto", type=click.Path(path_type=Path), help="Also write a trace for ui.perfetto.dev.")
@click.option("--seed", type=int, help="Fill the tape from this seed. Default: as `run` does.")
@click.option("--json", "as_json", is_flag=True, help="Print one object instead of lines.")
@project_option
@click.pass_context
def report(
    context: click.Context,
    scenario: Scenario,
    output: Path,
    perfetto: Path | None,
    seed: int | None,
    as_json: bool,
    project: str | None,
) -> None:
    """Run a scenario and write one HTML page that shows what happened, without any network.

    If something broke, the moment is marked in red, and the nearest run that held is laid beside it.

    Exit status: 0 it held, 1 it broke, 2 bad input.
    """
    made = find_project(project)
    tape = tape_of(scenario) if seed is None else Tape.seeded(seed)
    story, result = tell(scenario, tape, project=made)
    near = nearest_that_held(scenario, result.violations, project=made) if result.violations else None
    with unless_unwritable():
        output.write_text(_page(story, near, made), encoding="utf-8")
        if perfetto is not None:
            perfetto.write_text(json.dumps(trace_events(story)), encoding="utf-8")
    if as_json:
        beside = None if near is None else near.change
        wrote = {"page": str(output), "perfetto": None if perfetto is None else str(perfetto)}
        echo_json({**result.as_json(), "beside": beside, **wrote})
        context.exit(BROKEN if result.violations else 0)
    for line in violation_lines(result.violations, indent=""):
        click.echo(line)
    if result.violations:
        click.echo(f"beside it: {near.change}" if near is not None else "no run near it held")
    click.echo(f"{result.verdict}; wrote {output}")
    context.exit(BROKEN if result.violations else 0)


def _page(story: Story, near: Near | None, project: MakeProject) -> str:
    if near is None:
        return page(story)
    beside, _ = tell(near.scenario, near.tape(), project=project)
    return page(story, beside, near)
