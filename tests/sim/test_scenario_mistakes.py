"""Every kind of mistake in a scenario file is told where it stands, with what would be right."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from sim.scenario import parse_scenario
from tests.sim.test_scenario import GOOD

MISTAKES = tomllib.loads((Path(__file__).parent / "scenario_mistakes.toml").read_text())


def expect_one(text: str, key: str, says: str) -> None:
    """One problem, with this key and these words, on the line that holds the mark if there is one."""
    marked = [nth for nth, line in enumerate(text.splitlines(), start=1) if "»" in line]
    problems = parse_scenario(text.replace("»", ""), "x.toml")[1]
    assert [problem.key for problem in problems] == [key], problems
    assert says in str(problems[0])
    assert str(problems[0]).startswith(f"x.toml:{problems[0].line}: {key}")
    if marked and key:
        assert problems[0].line == marked[0]


@pytest.mark.parametrize("kind", MISTAKES["replaced"])
def test_a_mistake_is_told_with_file_line_and_key(kind: str) -> None:
    """A good file with one thing made wrong gives exactly one problem."""
    mistake = {key: value.replace("\\n", "\n") for key, value in MISTAKES["replaced"][kind].items()}
    assert mistake["old"] in GOOD
    expect_one(GOOD.replace(mistake["old"], mistake["new"], 1), mistake["key"], mistake["says"])


@pytest.mark.parametrize("kind", MISTAKES["added"])
def test_a_bad_table_is_told_with_file_line_and_key(kind: str) -> None:
    """A good file with one wrong table more gives exactly one problem."""
    mistake = {key: value.replace("\\n", "\n") for key, value in MISTAKES["added"][kind].items()}
    expect_one(GOOD + mistake["new"], mistake["key"], mistake["says"])
