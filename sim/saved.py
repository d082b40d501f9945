"""Scenarios as TOML text: what a campaign saves can be read, run, and changed by hand."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import attrs

from engine.providers.script import Reply
from engine.shape import Decoder
from sim.scenario import Scenario, TapeSpec
from sim.scenario.meaning import check_meaning
from sim.tape import Draw, Tape
from sim.verdict import Violation

HIDDEN_FIELDS = ("line", "file")
WIDTH = 100

FOUND = re.compile(r"Found by .*\(([^(),]+)(?:, [^()]*)?\)")
"""What `found_by` writes ends with the rule and the place in brackets."""


def with_tape(scenario: Scenario, tape: Tape, since: dict[str, int]) -> Scenario:
    """The scenario with the draws that its run made; `since` says where they begin in each stream."""
    values = {stream: [draw.value for draw in draws[since[stream] :]] for stream, draws in tape.draws.items()}
    return attrs.evolve(scenario, tape=TapeSpec(**{name: _trimmed(found) for name, found in values.items()}))


def lengths(tape: Tape) -> dict[str, int]:
    """How many draws each stream has."""
    return {stream: len(draws) for stream, draws in tape.draws.items()}


def tape_of(scenario: Scenario) -> Tape:
    """The tape that replays a scenario: its own, or the one of zeros."""
    if scenario.tape is None:
        return Tape.fifo()
    values: dict[str, tuple[int | Draw, ...]] = attrs.asdict(scenario.tape)
    return Tape.replay(values)


def dump(scenario: Scenario) -> str:
    """The scenario as the text of a file. Needs the package `tomli-w` (the extra `sim`)."""
    import tomli_w  # only campaigns write files, and only they need it

    whole: dict[str, Any] = _table(scenario)
    tape: dict[str, list[int]] | None = whole.pop("tape", None)
    text = tomli_w.dumps(whole, multiline_strings=False)
    if tape is None:
        return text
    draws = "".join(f"{stream} = {_wrapped(values)}\n" for stream, values in tape.items())
    return f"{text}\n[tape]\n{draws}"


def _wrapped(values: list[int]) -> str:
    """A list of numbers with many of them on a line."""
    return "\n".join(textwrap.wrap(str(values), WIDTH, subsequent_indent="  "))


def is_valid(scenario: Scenario) -> bool:
    """Whether the file that `dump` would write has no problem. Its tape isn't looked at."""
    raw = _table(attrs.evolve(scenario, tape=None))
    decoder = Decoder(line_of=lambda path: 0)
    decoder.table(Scenario, raw, ())
    check_meaning(raw, decoder)
    return not decoder.flaws


def found_by(how: str, violation: Violation) -> str:
    """What a saved failure proves once it is mended; it names the rule that was broken."""
    sentence = " ".join(str(violation).split())
    return f"Found by {how}, and must hold: {sentence}"


def rule_found(scenario: Scenario) -> str | None:
    """The rule that a saved failure broke when it was found; None if its words don't say."""
    named = FOUND.fullmatch(scenario.proves)
    return None if named is None else named[1]


def _trimmed(values: list[int]) -> tuple[int, ...]:
    while values and values[-1] == 0:
        values.pop()
    return tuple(values)


def _table(value: Any) -> dict[str, Any]:
    """A record as a table: keys without trailing underscores, defaults left out."""
    table: dict[str, Any] = {}
    for field in attrs.fields(type(value)):
        item = getattr(value, field.name)
        leads = field.name == getattr(type(value), "leads", None)
        if field.name in HIDDEN_FIELDS or item is None or (_is_default(field, item) and not leads):
            continue
        if field.name == "having":
            table.update(item)
        else:
            table[field.name.rstrip("_")] = _value(item)
    return table


def _is_default(field: attrs.Attribute[Any], item: Any) -> bool:
    default = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return not item
    return default is not attrs.NOTHING and bool(item == default)


def _value(item: Any) -> Any:
    if isinstance(item, Reply):
        return [_table(line) for line in item.lines]
    if attrs.has(type(item)):
        return _table(item)
    if isinstance(item, tuple | list):
        return [_value(one) for one in item]
    if isinstance(item, dict):
        return {key: _value(one) for key, one in item.items()}
    return item
