"""How things are shown: tables on a terminal, tab-separated lines elsewhere; and never raw session text.

What a model or a tool wrote may hold escape sequences that move the cursor, rename the window or reverse
the direction of writing. Each character that could is shown escaped.
"""

from __future__ import annotations

import datetime
import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence

import click
import rich.box
import rich.console
import rich.table
import rich.text

from engine.records import JSON

_DANGEROUS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control and format characters, halves of surrogate pairs, line and paragraph separators."""

_JOINERS = frozenset("\u200c\u200d")
"""Format characters that only join letters or emoji; without them both fall apart."""

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def plain(text: object) -> str:
    """`text` with everything escaped that could drive a terminal, in one line."""
    said = str(text)
    if said.isascii() and said.isprintable():
        return said
    return "".join(_escaped(char) for char in said)


def _escaped(char: str) -> str:
    if unicodedata.category(char) not in _DANGEROUS or char in _JOINERS:
        return char
    return char.encode("unicode_escape").decode("ascii")


def json_text(value: JSON, *, indent: int | None = None) -> str:
    """JSON in ASCII only, with control characters escaped: safe on any terminal and in any encoding."""
    return json.dumps(value, indent=indent)


def compact(value: JSON) -> str:
    """JSON for a person: one line, letters as they are, control characters escaped."""
    return plain(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")))


def when(created_ms: int) -> str:
    """A wall-clock time in milliseconds as UTC text; a number that is no time stays one."""
    try:
        moment = EPOCH + datetime.timedelta(milliseconds=created_ms)
    except OverflowError:
        return str(created_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}Z"


def seconds(ms: int) -> str:
    """A span of milliseconds, such as `12.3 s`."""
    return f"{ms / 1000:.1f} s"


def short(identifier: str | None) -> str:
    """The beginning of an id, enough to tell a session's executions apart."""
    return "-" if identifier is None else identifier[:12]


def count(number: int, noun: str) -> str:
    """A number and its noun, such as `1 session`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def say(text: str, *, error: bool = False) -> None:
    """One line of our own wording; what it quotes is escaped."""
    click.echo(plain(text), err=error)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Rows under headings: a table on a terminal, else lines of cells that tabs separate."""
    if sys.stdout.isatty():
        _rich_table(headings, rows)
        return
    click.echo("\t".join(headings))
    for row in rows:
        click.echo("\t".join(plain(cell) for cell in row))


def lines(widths: Sequence[int], rows: Iterable[Sequence[object]]) -> None:
    """Rows that come one by one, each shown at once: in columns on a terminal, else separated by tabs."""
    columns = sys.stdout.isatty()
    for row in rows:
        cells = [plain(cell) for cell in row]
        if columns:
            padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
            click.echo("  ".join(padded).rstrip())
        else:
            click.echo("\t".join(cells))


def _rich_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    drawn = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        drawn.add_column(heading, overflow="fold")
    for row in rows:
        drawn.add_row(*(rich.text.Text(plain(cell)) for cell in row))
    rich.console.Console(highlight=False, markup=False, emoji=False).print(drawn)
