"""`python -m sim replay`: a saved failure once more, to see whether it is still there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs
import click

from sim.cli.input import SCENARIO, BadInput, project_option
from sim.cli.output import echo_json, listed, violation_lines
from sim.project import MakeProject, Project, find_project
from sim.run import Result, judge
from sim.saved import rule_found, tape_of
from sim.scenario import Scenario
from sim.trace import Entry, explain, first_difference
from sim.words import entry as entry_line

HELD, BROKEN = 0, 1
LAST = 12
"""How many of the trace's last entries are shown."""

TELLING = ("commit", "refused", "provider", "tool", "fault", "disk", "node")
"""The entries that are shown then; gates, timers and readings of clocks are left to `--trace`."""


OWN_RULES = re.compile(r"I\d+|expect|config|determinism|project")
"""The rules that are asked without a project."""


@attrs.frozen(kw_only=True)
class Replay:
    """Two runs of one recorded tape. `rule` is what the file says that it broke, None if it doesn't;
    `difference` says where the second run went another way."""

    result: Result
    digests: tuple[str, str]
    rule: str | None
    difference: str | None

    @property
    def rules(self) -> list[str]:
        """The rules that it broke now."""
        return list(dict.fromkeys(violation.rule for violation in self.result.violations))

    @property
    def broken(self) -> bool:
        """Whether something broke, or the runs differ."""
        return bool(self.result.violations) or self.difference is not None

    @property
    def again(self) -> str:
        """What became of the rule that was broken when the file was saved."""
        if not self.rules:
            return "nothing broke" if self.rule is None else f"{self.rule} holds now"
        if self.rule is None:
            return f"{listed(self.rules)} broke"
        if self.rule in self.rules:
            return f"{self.rule} broke again"
        return f"{listed(self.rules)} broke now, and {self.rule} holds"

    def as_json(self) -> dict[str, object]:
        """For `--json`; `same_rule` is None if the file doesn't name one."""
        return {
            **self.result.as_json(),
            "verdict": "broken" if self.broken else "held",
            "rule": self.rule,
            "same_rule": None if self.rule is None else self.rule in self.rules,
            "digests": list(self.digests),
            "difference": self.difference,
        }


@click.command(short_help="Replay a saved failure: is it still there?")
@click.argument("scenario", metavar="FILE", type=SCENARIO)
@click.option("--trace", "whole", is_flag=True, help="Print every entry of the trace, not only the last.")
@click.option("--json", "as_json", is_flag=True, help="Print one object instead of lines.")
@project_option
@click.pass_context
def replay(
    context: click.Context, scenario: Scenario, whole: bool, as_json: bool, project: str | None
) -> None:
    """Replay a saved failure from its recorded tape, and say whether it breaks the same rule again.

    It is run twice, and both runs must come to one digest.

    Exit status: 0 it holds now, 1 it broke, 2 bad input.
    """
    if scenario.tape is None:
        raise BadInput(f"{scenario.file}: it has no recorded tape ([tape]) to replay; use `run` for it")
    rule = rule_found(scenario)
    if project is None and rule is not None and not OWN_RULES.fullmatch(rule):
        raise BadInput(
            f"{scenario.file}: {rule!r} is a rule of a project's own, which nobody would ask here; "
            "give its --project MODULE:FUNCTION"
        )
    found = replayed(scenario, project=find_project(project))
    entries = found.result.entries if whole else _last(found.result.entries)
    if as_json:
        echo_json({**found.as_json(), "trace": [entry_line.line(entry) for entry in entries]})
    else:
        for line in lines(found, entries, whole=whole):
            click.echo(line)
    context.exit(BROKEN if found.broken else HELD)


def replayed(scenario: Scenario, *, project: MakeProject = Project) -> Replay:
    """Run a scenario's recorded tape twice."""
    first, second = (judge(scenario, tape_of(scenario), project=project) for _ in range(2))
    difference = first_difference(first.entries, second.entries)
    return Replay(
        result=first,
        digests=(first.digest, second.digest),
        rule=rule_found(scenario),
        difference=None if difference is None else explain(difference),
    )


def lines(found: Replay, entries: list[Entry], *, whole: bool) -> Iterator[str]:
    """A replay as text: the verdict, what broke, the digest, and entries of the trace."""
    result = found.result
    yield f"{'BROKEN' if found.broken else 'held'} {result.scenario.name}: {found.again}"
    yield from violation_lines(result.violations)
    if found.difference is None:
        yield f"twice the same, digest {result.digest}"
    else:
        yield f"not reproducible, digests {' and '.join(found.digests)}: {found.difference}"
    yield "the trace:" if whole else "the last of the trace:"
    for entry in entries:
        yield f"  {entry_line.line(entry)}"


def _last(entries: list[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.kind in TELLING][-LAST:]
