"""The line of every key of a TOML text."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.shape import Path
from sim.scenario.locate import find_lines, line_of

EVERYTHING = r'''
a = 1  # [not.a.table]
"b.c" = 'x # y'
d.e . "f" = [1, [2,
  { g = 3, h.i = "}]" }, # comment, ]
], 'z',
]
text = """one
two \""" "three"
four"""""
raw = \'\'\'x
[[no]]
\'\'\'
after = true

[t]
date = 1979-05-27 07:32:00
[ t . "\u0075" ]
v = { }
[[l]]
w = 1
[l.m]
n = 1
[[l.o]]
p = 1
[[l]]
[[l.o]]
[[l.o]]
q = [ ]
'''.replace("\\'", "'")


def paths_in(data: Any, path: Path = ()) -> set[Path]:
    """Every table, key and list element of parsed data."""
    found = {path} if path else set()
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inside:
        found |= paths_in(value, (*path, key))
    return found


def test_every_key_and_element_has_its_line() -> None:
    """Dotted and quoted keys, tables in lists, lists over many lines, and texts that look like tables."""
    lines = find_lines(EVERYTHING)
    assert set(lines) == paths_in(tomllib.loads(EVERYTHING))
    rows = EVERYTHING.splitlines()
    for path, text in {
        ("a",): "a = 1",
        ("b.c",): '"b.c"',
        ("d", "e", "f", 1): "d.e",
        ("d", "e", "f", 1, 1): "  { g",
        ("d", "e", "f", 1, 1, "h", "i"): "  { g",
        ("d", "e", "f", 2): "], 'z'",
        ("text",): "text",
        ("after",): "after",
        ("t",): "[t]",
        ("t", "u"): "[ t .",
        ("t", "u", "v"): "v =",
        ("l",): "[[l]]",
        ("l", 0, "m", "n"): "n = 1",
        ("l", 0, "o", 0, "p"): "p = 1",
        ("l", 1, "o", 1, "q"): "q =",
    }.items():
        assert rows[lines[path] - 1].startswith(text), path
    assert [lines["l", 1], lines["l", 1, "o", 0], lines["l", 1, "o", 1]] == [26, 27, 28]


def test_what_has_no_line_is_where_its_table_is() -> None:
    """A key that isn't in the file, such as a missing one, is told at the table that lacks it."""
    lines = find_lines("a = 1\n[t]\nb = 2\n")
    assert line_of(lines, ("t", "c", 3)) == 2
    assert line_of(lines, ("x",)) == 1


KEYS = st.text(st.sampled_from("ab-_.\"'# =[]é\\"), max_size=4)
VALUES = st.recursive(
    st.booleans() | st.integers(-99, 99) | st.text(st.sampled_from("a,]}#\n\"'\\[{= "), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def basic(text: str) -> str:
    """`text` as a TOML text in one line."""
    return '"' + "".join(f"\\u{ord(c):04x}" if c in '"\\\n' else c for c in text) + '"'


class Writer:
    """Writes data as TOML in a drawn style, and notes the line on which each key was put."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.text = ""
        self.lines: dict[Path, int] = {}

    def put(self, text: str) -> None:
        self.text += text

    def gap(self) -> None:
        self.put(self.draw(st.sampled_from(["", " ", "\n", " # ] } ' \"\n", "\r\n\t"])))

    def note(self, path: Path) -> None:
        self.lines.setdefault(path, self.text.count("\n") + 1)

    def value(self, value: Any, path: Path) -> None:
        if isinstance(value, bool):
            self.put("true" if value else "false")
        elif isinstance(value, int):
            self.put(str(value))
        elif isinstance(value, str):
            self.put(self.draw(st.sampled_from(self.spellings(value))))
        elif isinstance(value, list):
            self.put("[")
            for nth, item in enumerate(value):
                self.gap()
                self.note((*path, nth))
                self.value(item, (*path, nth))
                self.gap()
                if nth < len(value) - 1 or self.draw(st.booleans()):
                    self.put(",")
            self.gap()
            self.put("]")
        else:
            self.put("{")
            for nth, (key, item) in enumerate(value.items()):
                self.put(" , " if nth else " ")
                self.pair(key, item, path)
            self.put("}")

    def spellings(self, value: str) -> list[str]:
        ways = [basic(value), '"""\n' + value.replace("\\", "\\\\").replace('"""', '""\\"') + '"""']
        if "'" not in value:
            ways.append(f"'''{value}'''")
            if "\n" not in value:
                ways.append(f"'{value}'")
        return [way for way in ways if read_back(way) == value]

    def pair(self, key: str, value: Any, path: Path) -> None:
        self.note((*path, key))
        self.put(basic(key) + " = ")
        self.value(value, (*path, key))


def read_back(spelling: str) -> Any:
    try:
        return tomllib.loads(f"x = {spelling}")["x"]
    except tomllib.TOMLDecodeError:
        return None


@given(
    data=st.data(),
    top=st.dictionaries(KEYS, VALUES, max_size=4),
    rows=st.lists(st.dictionaries(KEYS, VALUES)),
)
def test_the_scan_follows_any_valid_text(data: st.DataObject, top: dict[str, Any], rows: Any) -> None:
    """Whatever data is written in whatever style, the scan finds just its keys, each on its line."""
    writer = Writer(data.draw)
    for key, value in top.items():
        writer.pair(key, value, ())
        writer.put("\n")
    for nth, row in enumerate(rows):
        writer.gap()
        writer.put("\n")
        writer.note(("rows",))
        writer.note(("rows", nth))
        writer.put("[[ rows ]]\n")
        for key, value in row.items():
            writer.pair(key, value, ("rows", nth))
            writer.put(" # x\n")
    assert tomllib.loads(writer.text) == top | ({"rows": rows} if rows else {})
    assert find_lines(writer.text) == writer.lines
