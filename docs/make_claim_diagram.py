"""Draws the claim's phases and its table of rules into `docs/design.md`, from the tables that decide them.

Run `python docs/make_claim_diagram.py` after a change to `engine.claims.TABLE` or `MOVES`. A test compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from engine.claims import COMMANDS, MOVES, TABLE, Acquire, Clear, Command, Rule
from engine.records import Phase

PAGE = Path(__file__).with_name("design.md")
BEGIN = "<!-- claims: drawn by docs/make_claim_diagram.py -->"
END = "<!-- claims: end -->"

Table = Mapping[Phase | None, Mapping[type[Command], Rule]]
Moves = Mapping[Phase, Sequence[Phase]]

INDENT = "    "


def groups(table: Table) -> list[list[Phase | None]]:
    """The table's phases in its order; those with equal columns stand together."""
    found: list[list[Phase | None]] = []
    for phase, column in table.items():
        same = next((group for group in found if table[group[0]] == column), None)
        if same is None:
            found.append([phase])
        else:
            same.append(phase)
    return found


def diagram(table: Table, moves: Moves) -> Iterator[str]:
    """The moves as a Mermaid state diagram; phases with equal columns share a box.

    A move that every phase of a box may make is drawn once, from the box. Moves to itself are left out.
    """
    yield "```mermaid"
    yield "stateDiagram-v2"
    for group in groups(table):
        phases = [phase for phase in group if phase is not None]
        shared = [to for to in Phase if to not in phases and all(to in moves[one] for one in phases)]
        name = "running" if len(phases) > 1 else "".join(phases)
        if Phase.READY in phases and table[None][Acquire] is Rule.INSERT:
            yield f"{INDENT}[*] --> {name} : Acquire"
        if len(phases) > 1:
            yield f"{INDENT}state running {{"
            if Phase.READY in phases:
                yield f"{INDENT * 2}[*] --> {Phase.READY}"
            for one in phases:
                yield from (f"{INDENT * 2}{one} --> {to}" for to in moves[one] if to != one and to in phases)
            yield f"{INDENT}}}"
        yield from (f"{INDENT}{name} --> {to}" for to in shared if phases)
        for one in phases:
            yield from (
                f"{INDENT}{one} --> {to}" for to in moves[one] if to not in phases and to not in shared
            )
        if phases and table[phases[0]][Clear] in (Rule.GRANT, Rule.UNASKED):
            yield f"{INDENT}{name} --> [*] : Clear"
    yield "```"


def rules(table: Table) -> Iterator[str]:
    """What each command gets in each phase, as a Markdown table."""
    columns = groups(table)
    heads = [", ".join("no row" if phase is None else f"`{phase}`" for phase in group) for group in columns]
    yield f"| command | {' | '.join(heads)} |"
    yield f"| --- |{' --- |' * len(columns)}"
    for command in COMMANDS:
        cells = [table[group[0]][command].value for group in columns]
        yield f"| `{command.__name__}` | {' | '.join(cells)} |"


def drawing(table: Table = TABLE, moves: Moves = MOVES) -> str:
    """All that stands between the markers."""
    return "\n".join([*diagram(table, moves), "", *rules(table)])


def redrawn(page: str, drawn: str) -> str:
    """The page with `drawn` between its markers. Raises `ValueError` if a marker is missing."""
    begin = page.index(BEGIN) + len(BEGIN)
    return f"{page[:begin]}\n\n{drawn}\n\n{page[page.index(END, begin) :]}"


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text(encoding="utf-8"), drawing()), encoding="utf-8")
