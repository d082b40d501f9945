"""`python -m sim ablate`: switch protections off one by one, and see the simulator find each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from sim.ablations import ABLATIONS, GENERATED, Ablation, Finding, named, search
from sim.ablations.search import SAMPLE, SEEDS_MAX
from sim.cli.input import BadInput
from sim.cli.output import echo_json
from sim.patience import patience

NOT_FOUND = 1


class Named(click.ParamType[Ablation]):
    """The name of an ablation."""

    name = "name"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Ablation:
        """Find it, or refuse it with the nearest name."""
        try:
            return named(str(value))
        except LookupError as exc:
            raise BadInput(str(exc.args[0])) from exc


@click.command(short_help="Switch protections off, and see the simulator notice.")
@click.argument("names", metavar="[NAME]...", nargs=-1, type=Named())
@click.option(
    "--seeds", type=click.IntRange(min=1), default=SEEDS_MAX, show_default=True, help="Try at most so many."
)
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=SAMPLE,
    show_default=True,
    help="Go on to so many seeds after it was found, for the rate.",
)
@click.option("--generated", is_flag=True, help="Look in generated worlds instead of those made for it.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects instead of lines.")
@click.pass_context
def ablate(
    context: click.Context,
    names: tuple[Ablation, ...],
    seeds: int,
    sample: int,
    generated: bool,
    as_json: bool,
) -> None:
    """Switch off one protection of the engine at a time, and look for an invariant that breaks.

    Every seed is run twice: with the protection off, and with it on, where nothing may break. Without a NAME
    all are tried. Ctrl-C keeps what was found so far, and tries no more.

    Exit status: 0 all were found, 1 some weren't, 2 there is no such protection.
    """
    sources = GENERATED if generated else None
    findings: list[Finding] = []
    with patience("ablate") as waiting:
        for ablation in names or ABLATIONS:
            waiting.begin(ablation.name, seeds)
            found = search(ablation, seeds_max=seeds, sample=sample, sources=sources, told=waiting.told)
            if waiting.stopped() and found.violation is None and not found.control:
                break  # it wasn't missed: nobody looked to the end
            findings.append(found)
            if not as_json:
                for line in lines(found):
                    click.echo(line)
            if waiting.stopped():
                break
    if as_json:
        echo_json([found.as_json() for found in findings])
    else:
        click.echo(summary(findings, len(names or ABLATIONS)))
    all_found = all(found.found for found in findings) and len(findings) == len(names or ABLATIONS)
    context.exit(0 if all_found else NOT_FOUND)


def lines(found: Finding) -> Iterator[str]:
    """One finding as text: what was switched off, what saw it, how soon and how often, and the sentence."""
    rule = "-" if found.violation is None else found.violation.rule
    facts = found.as_json()
    yield (
        f"{'found ' if found.found else 'MISSED'} {rule:4} {found.seeds:>4} seeds {facts['per_1000']:>6}/1000"
        f"  {found.ablation.name}: {found.ablation.protection}"
    )
    if found.violation is not None:
        yield f"       {found.by}: {found.violation.sentence}"
    for sentence in found.control:
        yield f"       broken although nothing was switched off: {sentence}"


def summary(findings: Sequence[Finding], of: int) -> str:
    """The last line."""
    found = sum(finding.found for finding in findings)
    tried = "" if len(findings) == of else f", {of - len(findings)} not tried to the end"
    return f"found {found} of {of} protections that were switched off{tried}"
