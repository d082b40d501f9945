"""`python -m sim demo`: the best of the simulator in half a minute."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click

from sim.ablations import Ablation, Finding, named, search
from sim.cli.input import BadInput, unless_unwritable
from sim.cli.output import count
from sim.fuzz import campaign
from sim.matrix import MODES, run_matrix
from sim.patience import patience
from sim.report import Story, page, tell
from sim.report.near import Near
from sim.run import run_scenario
from sim.scenario import Scenario, load_scenario
from sim.schedulers import scheduler_of, tape_for

BROKEN = 1
FLAGSHIP = "interrupted_step_started"
SWITCHED_OFF = "fence_by_execution_id"
FUZZ_S = 8.0
JOBS = 2


@click.command(short_help="Show the best of it in half a minute.")
@click.argument(
    "folder",
    default="scenarios",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
)
@click.option("--page", "output", type=click.Path(path_type=Path), help="Where to write the page.")
@click.pass_context
def demo(context: click.Context, folder: Path, output: Path | None) -> None:
    """Play the scenario files of FOLDER, interrupt one at every gate, switch a protection off, fuzz a little.

    Exit status: 0 all held (and what was switched off was noticed), 1 something broke, 2 bad input.
    """
    flagship = folder / f"{FLAGSHIP}.toml"
    if not flagship.is_file():
        raise BadInput(f"{flagship}: the demonstration needs this file; run it where Fencepost's files are")
    held = [_play(folder), _interrupt(load_scenario(flagship)), _switch_off(output), _fuzz()]
    context.exit(0 if all(held) else BROKEN)


def _play(folder: Path) -> bool:
    click.echo("1. Scenarios: the real engine, a virtual clock, one moment each that must not hurt\n")
    began, gates, broken = time.perf_counter(), 0, 0
    files = sorted(folder.rglob("*.toml"))
    with patience("scenarios", len(files)) as waiting:
        for done, file in enumerate(files, start=1):
            result = run_scenario(load_scenario(file))
            gates, broken = gates + result.gates, broken + bool(result.violations)
            if not waiting.told(done):
                raise click.Abort
    seconds = time.perf_counter() - began
    click.echo(f"   {len(files) - broken} held, {broken} broken: {gates} gates in {seconds:.1f} s")
    click.echo(f"   $ python -m sim run {folder}\n")
    return not broken


def _interrupt(scenario: Scenario) -> bool:
    click.echo(f"2. One of them, interrupted at each of its gates in {len(MODES)} ways")
    click.echo(f"   {scenario.proves}\n")
    began = time.perf_counter()
    with patience("matrix") as waiting:
        found = run_matrix(scenario, waiting.told)
    facts, seconds = found.as_json(), time.perf_counter() - began
    click.echo(
        f"   {facts['gates']} gates, {facts['cells']} cells, {facts['not_applicable']} can't apply, "
        f"{facts['failures']} broken, in {seconds:.1f} s"
    )
    click.echo(f"   $ python -m sim matrix {scenario.file}\n")
    if not found.complete:
        raise click.Abort
    return not found.failures


def _switch_off(output: Path | None) -> bool:
    ablation = named(SWITCHED_OFF)
    click.echo("3. The same engine with one protection switched off: the simulator must notice")
    click.echo(f"   {ablation.protection}\n")
    finding = search(ablation, sample=0)
    if finding.violation is None:
        click.echo(f"   not noticed in {count(finding.runs, 'seed')}")
        return False
    found = finding.violation
    click.echo(f"   {found.rule}, after {count(finding.seeds, 'seed')}: {found.sentence}")
    if output is None:
        output = Path(tempfile.mkdtemp(prefix="fencepost-")) / "broken.html"
    with unless_unwritable():
        output.write_text(_page(ablation, finding), encoding="utf-8")
    click.echo(f"   Look at it: {output}")
    click.echo(f"   $ python -m sim ablate {SWITCHED_OFF}\n")
    return finding.found


def _page(ablation: Ablation, finding: Finding) -> str:
    """The run that broke, and beside it the same seed with the protection on."""
    seed = finding.seeds - 1
    source = next(source for source in ablation.sources if source.name == finding.by)

    def story() -> tuple[Story, Scenario]:
        tape = tape_for(seed, scheduler_of(seed))
        scenario = source.make(tape, SWITCHED_OFF)
        with source.trouble(tape):
            return tell(scenario, tape)[0], scenario

    with ablation.off():
        broken, _ = story()
    held, scenario = story()
    return page(broken, held, Near(change="with the protection on", scenario=scenario, seed=seed))


def _fuzz() -> bool:
    click.echo(f"4. Worlds that nobody wrote, for {FUZZ_S:g} s on {JOBS} processes\n")
    with patience("fuzz") as waiting:
        found = campaign(
            seeds=None,
            first=0,
            seconds=FUZZ_S,
            jobs=JOBS,
            save=None,
            told=lambda so_far: waiting.told(so_far.seeds),
        )
    faults = ", ".join(f"{number} {kind}" for kind, number in found.faults_applied.most_common(6))
    click.echo(f"   {found.seeds} worlds, {found.gates} gates, {len(found.failures)} broken; {faults} …")
    click.echo("   $ python -m sim fuzz --seconds 60 --jobs 2")
    return not found.failures
