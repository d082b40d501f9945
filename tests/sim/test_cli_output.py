"""What the commands print of violations, and how they count and list."""

from __future__ import annotations

import pytest

from sim.cli.output import count, listed, violation_lines
from sim.trace import Entry
from sim.verdict import Violation

ENTRY = Entry(7, 31_000.0, "node", "a.1", "", "paused", {})
VIOLATION = Violation(rule="I3", sentence="a renewed its claim", session="ses_s", around=(ENTRY,))


def test_a_violation_is_three_steps_of_indentation() -> None:
    """The sentence, below it the rule and the place, below that the entries, unless they aren't wanted."""
    lines = list(violation_lines([VIOLATION], indent=" "))
    assert lines == [" a renewed its claim", "   I3, session s", f"     {VIOLATION.lines()[2]}"]
    assert list(violation_lines([VIOLATION, VIOLATION], indent=" ", around=False)) == lines[:2] * 2


@pytest.mark.parametrize(
    ("names", "text"), [(["I3"], "I3"), (["I3", "I9"], "I3 and I9"), (["I3", "I4", "I9"], "I3, I4 and I9")]
)
def test_lists_read_as_a_person_writes_them(names: list[str], text: str) -> None:
    """Commas, and one `and` before the last."""
    assert listed(names) == text


def test_one_is_no_plural() -> None:
    """`1 file`, but `0 files` and `2 files`."""
    assert [count(number, "file") for number in range(3)] == ["0 files", "1 file", "2 files"]
