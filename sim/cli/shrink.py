"""`python -m sim shrink`: a failing scenario made small."""

from __future__ import annotations

from pathlib import Path

import click

from sim.cli.input import SCENARIO, BadInput, project_option, refuse_without_engine, unless_unwritable
from sim.cli.output import again, count, echo_json, listed
from sim.fuzz import broken_rules
from sim.patience import patience
from sim.saved import dump
from sim.scenario import Scenario
from sim.shrink.search import RUNS_MAX
from sim.shrink.search import shrink as shrink_scenario

BROKEN = 1


@click.command(short_help="Make a failing scenario small.")
@click.argument("scenario", metavar="FILE", type=SCENARIO)
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Where to write; default: print it.")
@click.option("--json", "as_json", is_flag=True, help="Print one object, with the scenario as text in it.")
@project_option
@click.pass_context
def shrink(
    context: click.Context, scenario: Scenario, output: Path | None, as_json: bool, project: str | None
) -> None:
    """Make a failing scenario small: what isn't needed for the same rules to break is taken away.

    Only invariants count; what the file expects isn't asked. Ctrl-C keeps the smallest found so far.

    Exit status: 1 it is still broken, as it must be; 2 bad input, or nothing is broken in it.
    """
    refuse_without_engine(scenario, "shrink")
    rules = broken_rules(scenario, project)
    if not rules:
        raise BadInput(f"{scenario.file}: every invariant held, so there is nothing to shrink")
    with patience(scenario.name, RUNS_MAX) as waiting:
        small, runs = shrink_scenario(
            scenario, lambda candidate: bool(rules & broken_rules(candidate, project)), told=waiting.told
        )
        complete = not waiting.stopped()
    text = dump(small)
    if output is not None:
        with unless_unwritable():
            output.write_text(text, encoding="utf-8")
    if as_json:
        facts = {"rules": sorted(rules), "runs": runs, "complete": complete, "scenario": text}
        echo_json({**facts, "saved": None if output is None else str(output)})
        context.exit(BROKEN)
    broken = listed(sorted(rules))
    click.echo(
        f"{count(runs, 'run')}{'' if complete else ', stopped early'}; {broken} still broken", err=True
    )
    said = f"wrote {output}; {again('run' if small.tape is None else 'replay', output, project)}"
    click.echo(text if output is None else said)
    context.exit(BROKEN)
