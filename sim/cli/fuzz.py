"""`python -m sim fuzz`: many worlds, a seed each."""

from __future__ import annotations

from pathlib import Path

import click

from sim.cli.input import SCENARIO, project_option, refuse_without_engine, unless_unwritable
from sim.cli.output import again, count, echo_json, violation_lines
from sim.fuzz import Campaign, campaign
from sim.patience import patience
from sim.scenario import Scenario
from sim.sometimes import SOMETIMES

BROKEN = 1


@click.command(short_help="Run many generated worlds, a seed each.")
@click.argument("scenario", metavar="[FILE]", required=False, type=SCENARIO)
@click.option("--seeds", type=click.IntRange(min=1), help="How many seeds; 1000 unless --seconds is given.")
@click.option(
    "--from", "first", type=click.IntRange(min=0), default=0, show_default=True, help="The first seed."
)
@click.option("--seconds", type=click.FloatRange(min=0), help="Begin no seed after so long.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="How many processes.")
@click.option(
    "--save", type=click.Path(path_type=Path, file_okay=False), help="Folder for what fails, shrunk."
)
@click.option("--json", "as_json", is_flag=True, help="Print one object instead of the tables.")
@project_option
@click.pass_context
def fuzz(
    context: click.Context,
    scenario: Scenario | None,
    seeds: int | None,
    first: int,
    seconds: float | None,
    jobs: int,
    save: Path | None,
    as_json: bool,
    project: str | None,
) -> None:
    """Run generated worlds, a seed each, and check every invariant. Ctrl-C keeps what was found so far.

    With FILE every seed runs that file's world, in an order and with more faults that it draws; what the file
    expects isn't asked.

    It prints which faults were really applied and which rare states were reached: an empty campaign must not
    look like a clean one. From 5000 seeds of generated worlds on, a rare state that was never reached fails
    the campaign.

    Exit status: 0 nothing broke, 1 something did, 2 bad input.
    """
    if scenario is not None:
        refuse_without_engine(scenario, "disturb")
    if seeds is None and seconds is None:
        seeds = 1_000
    if save is not None:
        with unless_unwritable():
            save.mkdir(parents=True, exist_ok=True)
    with patience("fuzz" if scenario is None else f"fuzz {scenario.name}", seeds) as waiting:
        found = campaign(
            seeds=seeds,
            first=first,
            seconds=seconds,
            jobs=jobs,
            save=save,
            told=lambda so_far: waiting.told(so_far.seeds),
            project=project,
            base=scenario,
        )
    if as_json:
        echo_json(found.as_json())
    else:
        _print(found, project)
    context.exit(BROKEN if found.broken else 0)


def _print(found: Campaign, project: str | None) -> None:
    facts = found.as_json()
    click.echo(
        f"{count(found.seeds, 'seed')} in {found.seconds:.1f} s ({facts['runs_per_s']} runs/s), per run "
        f"{facts['gates_per_run']} gates and {facts['events_per_run']} events"
        f"{'' if found.complete else ', stopped early'}"
    )
    click.echo("faults applied:")
    for kind, times in sorted(found.faults_applied.items()):
        click.echo(f"  {times:>8} {kind}")
    if not found.faults_applied:
        click.echo("         none")
    click.echo("sometimes:")
    for name in SOMETIMES:
        click.echo(f"  {found.sometimes[name]:>8} {name}")
    for failure in found.failures:
        click.echo(f"BROKEN seed {failure.seed} ({failure.scheduler})")
        for line in violation_lines(failure.violations[:1]):
            click.echo(line)
        for line in violation_lines(failure.violations[1:], around=False):
            click.echo(line)
    for path in found.saved:
        click.echo(f"saved {path}; {again('replay', path, project)}")
    if found.broken and not found.failures:
        click.echo(f"BROKEN never reached: {'; '.join(found.unreached)}")
    total = count(len(found.failures), "seed")
    click.echo(f"{total} broke an invariant" if found.failures else "no seed broke an invariant")
