"""`python -m sim from-log`: a session of a real database as a scenario file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from engine.codec import decode_row
from engine.errors import FencepostError
from engine.events import Stored
from engine.ports import Reader
from engine.store import open_readonly
from sim.cli.input import BadInput, unless_unwritable
from sim.cli.output import echo_json, violation_lines
from sim.from_log import Redaction, scenario_from_log

PAGE = 1_000
NAMED_MAX = 10
BROKEN = 1


class Pattern(click.ParamType["re.Pattern[str]"]):
    """A regular expression."""

    name = "regex"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> re.Pattern[str]:
        """Compile it, or refuse it with its fault."""
        try:
            return re.compile(str(value))
        except re.error as exc:
            raise BadInput(f"--redact {value}: {exc}") from exc


@click.command("from-log", short_help="Make a scenario of a session in a real database.")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("session")
@click.option("--output", "-o", type=click.Path(path_type=Path), required=True, help="The scenario file.")
@click.option("--redact", type=Pattern(), multiple=True, help="Replace what it matches in every text.")
@click.option("--json", "as_json", is_flag=True, help="Print one object instead of lines.")
@click.pass_context
def from_log(
    context: click.Context,
    file: Path,
    session: str,
    output: Path,
    redact: Sequence[re.Pattern[str]],
    as_json: bool,
) -> None:
    """Make a scenario of a session in a database: its provider and tools answer as they did.

    The database is only looked at. Clients and crashes come back at the events they followed. The scenario is
    run once; where its log goes another way than the real one, that is said.

    Exit status: 0 it held, 1 it broke, 2 bad input.
    """
    redaction = Redaction(redact)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", output.stem).lstrip("_.-")[:64] or "from_log"
    try:
        made = scenario_from_log(_log(file, session), name, redaction)
    except ValueError as exc:
        raise BadInput(f"{file}: {exc}") from exc
    with unless_unwritable():
        output.write_text(made.text, encoding="utf-8")
    if as_json:
        facts = {"same_course": made.same_course, "redactions": redaction.hits, "notes": list(made.notes)}
        echo_json({**made.result.as_json(), **facts, "saved": str(output)})
        context.exit(BROKEN if made.result.violations else 0)
    for note in made.notes:
        click.echo(f"note: {note}")
    for line in violation_lines(made.result.violations, indent=""):
        click.echo(line)
    course = "as it went" if made.same_course else "but goes another way"
    click.echo(f"{made.result.verdict}, {course}; {redaction.hits} redactions; wrote {output}")
    context.exit(BROKEN if made.result.violations else 0)


def _log(file: Path, session: str) -> list[Stored]:
    try:
        with open_readonly(file) as store:
            log = store.read(lambda tx: _events(tx, session))
            if log:
                return log
            known = [row.session_id for row in store.read(lambda tx: tx.sessions("", NAMED_MAX))]
    except FencepostError as exc:
        raise BadInput(str(exc)) from exc
    names = f"; it has {', '.join(known)}" if known else ""
    raise BadInput(f"{file}: there is no session {session} in this database{names}")


def _events(tx: Reader, session: str) -> list[Stored]:
    found: list[Stored] = []
    after = -1
    while page := tx.events(session, after, PAGE):
        found += [decode_row(row) for row in page]
        after = page[-1].seq
    return found
