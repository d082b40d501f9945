"""What the commands print of violations: the sentence, then the rule and the place, then the entries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import click

from sim.verdict import Violation


def violation_lines(
    violations: Iterable[Violation], indent: str = "  ", *, around: bool = True
) -> Iterator[str]:
    """The lines of some violations, in their order."""
    for violation in violations:
        sentence, place, *entries = violation.lines()
        yield f"{indent}{sentence}"
        yield f"{indent}  {place}"
        for entry in entries if around else ():
            yield f"{indent}    {entry}"


def again(command: str, path: object, project: str | None) -> str:
    """How a scenario file is seen again."""
    own = "" if project is None else f"--project {project} "
    return f"see it again with: python -m sim {command} {own}{path}"


def echo_json(value: object) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, indent=2))


def count(number: int, what: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """`I3`, `I3 and I9`, `I3, I4 and I9`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
