"""Reads scenario files: every problem at once, each with its file and line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path as FilePath

import attrs

from engine.shape import Decoder, Flaw, Path
from sim.scenario.locate import find_lines, line_of
from sim.scenario.meaning import check_meaning
from sim.scenario.model import Scenario


@attrs.frozen(kw_only=True)
class Problem:
    """What is wrong in a scenario file. `key` is a path such as `actions[2].node`; `line` counts from 1."""

    file: str
    line: int
    key: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        key = f" {self.key}:" if self.key else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.file}:{self.line}:{key} {self.message}{hint}"


class ScenarioError(Exception):
    """A scenario file can't be run as it stands. The author's fault: `problems`, and the message with one
    line for each, say what to mend where."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def load_scenario(path: str | FilePath) -> Scenario:
    """The scenario in a file. Raises `ScenarioError` with every problem."""
    scenario, problems = _read(path)
    if scenario is None:
        raise ScenarioError(problems)
    return scenario


def check_scenario(path: str | FilePath) -> list[Problem]:
    """Every problem of a file, in the order of its lines; none if it can be run."""
    return _read(path)[1]


def parse_scenario(text: str, file: str) -> tuple[Scenario | None, list[Problem]]:
    """The scenario in a text, or None and its problems; `file` names it, and is its default name."""
    try:
        raw = tomllib.loads(text)
        lines = find_lines(text)
    except tomllib.TOMLDecodeError as exc:
        return None, [_syntax_problem(text, file, exc)]
    except RecursionError:
        return None, [Problem(file=file, line=1, key="", message="is nested too deeply to be read")]
    decoder = Decoder(line_of=lambda path: line_of(lines, path))
    named = {"name": FilePath(file).stem, **raw}
    scenario = decoder.table(Scenario, named, ())
    check_meaning(raw, decoder)
    if decoder.flaws:
        problems = [_problem(file, flaw, line_of(lines, flaw.path)) for flaw in decoder.flaws]
        return None, sorted(problems, key=lambda problem: problem.line)
    return attrs.evolve(scenario, file=file), []


def _read(path: str | FilePath) -> tuple[Scenario | None, list[Problem]]:
    file = str(path)
    try:
        data = FilePath(path).read_bytes()
    except OSError as exc:
        return None, [Problem(file=file, line=1, key="", message=f"can't be read: {exc.strerror}")]
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        return None, [Problem(file=file, line=line, key="", message="isn't UTF-8 text")]
    return parse_scenario(text, file)


def _syntax_problem(text: str, file: str, error: tomllib.TOMLDecodeError) -> Problem:
    """The parser's own complaint, at the line it names."""
    found = re.search(r"at line (\d+)", str(error))
    line = int(found[1]) if found else text.rstrip().count("\n") + 1
    return Problem(file=file, line=line, key="", message=f"isn't TOML: {error}")


def _problem(file: str, flaw: Flaw, line: int) -> Problem:
    return Problem(file=file, line=line, key=_dotted(flaw.path), message=flaw.message, hint=flaw.hint)


def _dotted(path: Path) -> str:
    """`("actions", 2, "node")` as `actions[2].node`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")
