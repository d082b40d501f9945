"""The page about scenario files says what the classes say."""

from __future__ import annotations

import re
import tomllib
import typing
from pathlib import Path
from typing import Any

import attrs

from engine.providers.script import LINES
from engine.shape import HIDDEN, REST, hints_of, key_of, keys_of
from sim.scenario import (
    Action,
    ClockStep,
    Disk,
    Fault,
    Follower,
    Listener,
    Location,
    Mangle,
    Node,
    NodeClock,
    Scenario,
    Session,
    TapeSpec,
    Tool,
    parse_scenario,
)
from sim.scenario.expect import Expect
from sim.scenario.model import Trigger

DOCS = Path(__file__).parents[2] / "docs" / "scenarios.md"

SECTIONS: dict[str, type] = {
    "The file": Scenario,
    "`[disk]`": Disk,
    "`[[nodes]]`": Node,
    "`[nodes.clock]`": NodeClock,
    "`steps` of a clock": ClockStep,
    "`[[sessions]]`": Session,
    "`mangle` of a session": Mangle,
    "`[[tools]]`": Tool,
    "`[[locations]]`": Location,
    "`[[listeners]]`": Listener,
    "`[[followers]]`": Follower,
    "`[[actions]]`": Action,
    "`[[faults]]`": Fault,
    "`[tape]`": TapeSpec,
}
LED: dict[str, list[Any]] = {
    "Replies": list(LINES),
    "Triggers": list(typing.get_args(Trigger)),
    "`[[expect]]`": list(typing.get_args(Expect)),
}
EVERY_LINE = {"delay_ms", "escapes"}


def documented() -> dict[str, dict[str, str]]:
    """The tables of the page: for each heading, the default of each key. A heading with a leading key is
    told by the heading it stands under, too: `Triggers/event`."""
    tables: dict[str, dict[str, str]] = {}
    group = heading = ""
    for line in DOCS.read_text().splitlines():
        if found := re.match(r"#{2,4} (.*)", line):
            heading = found[1]
            if heading in LED:
                group = heading
            elif lead := re.match(r"`(\w+)`: ", heading):
                heading = f"{group}/{lead[1]}"
        elif row := re.match(r"\| `(\w+)` \| [^|]+ \| ([^|]+) \| [^|]+ \|$", line):
            tables.setdefault(heading, {})[row[1]] = row[2].strip()
    return tables


def classes() -> dict[str, type]:
    """The class behind each heading."""
    led = {f"{group}/{cls.leads}": cls for group, several in LED.items() for cls in several}
    return SECTIONS | led


def default_of(cls: type, key: str) -> object:
    fields = {key_of(field.name): field for field in attrs.fields(cls)}
    default = fields[key].default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]


def test_every_key_is_documented_and_every_documented_key_exists() -> None:
    """The page and the classes have the same tables with the same keys."""
    tables = documented()
    assert set(tables.pop("Replies")) == EVERY_LINE
    assert set(tables) == set(classes())
    for heading, cls in classes().items():
        keys = [key for key in keys_of(cls) if not (heading.startswith("Replies/") and key in EVERY_LINE)]
        assert list(tables[heading]) == keys or set(tables[heading]) == set(keys), heading


def test_the_documented_defaults_are_true() -> None:
    """A default written as a value is that value; `required` and `-` are what they say."""
    checked = 0
    for heading, cls in classes().items():
        for key, told in documented()[heading].items():
            default = default_of(cls, key)
            leading = key == getattr(cls, "leads", "")
            if told == "required":
                assert default is attrs.NOTHING, (heading, key)
            elif told == "-":
                assert default is None, (heading, key)
            elif found := re.fullmatch(r"`([^`]+)`", told):
                value = tomllib.loads(f"x = {found[1]}")["x"]
                if (heading, key) != ("Replies/call", "input"):
                    assert default in (value, tuple(value) if isinstance(value, list) else value), (
                        heading,
                        key,
                    )
            else:
                assert default is not attrs.NOTHING or key == "name", (heading, key)
                assert not leading
            checked += 1
    assert checked > 90


def test_the_words_of_a_choice_are_documented() -> None:
    """Each word that a key may have stands in that key's row, or at least on the page."""
    page = DOCS.read_text()
    for cls in classes().values():
        for hint in hints_of(cls).values():
            for word in words_of(hint):
                assert f"`{word}`" in page or f"`{word}:" in page, (cls, word)


def words_of(hint: object) -> list[str]:
    """The words that an annotation allows, where it lists them."""
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    return [word for part in typing.get_args(hint) if not isinstance(part, str) for word in words_of(part)]


def test_the_examples_of_the_page_load() -> None:
    """Every block of TOML on the page is a whole scenario without problems."""
    blocks = re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        assert parse_scenario(block, "x.toml")[1] == []


def test_only_known_marks_are_left_out_of_the_keys() -> None:
    """What isn't a key is a line, a file, or the rest of an `events` expectation."""
    hidden = {
        name
        for cls in classes().values()
        for name, hint in hints_of(cls).items()
        if {HIDDEN, REST} & {id_ for id_ in typing.get_args(hint) if id_ in (HIDDEN, REST)}
    }
    assert hidden == {"line", "file", "having"}
