"""The script language: what a scripted provider says in one request, as data.

A `Reply` is a list of lines, played in order. A line is a frozen class here and a table in TOML or JSON, with
the same keys; its leading key tells which line it is:

    Reply(lines=(Text(text="Hello there", chunks=2, delay_ms=10), Finish(finish="stop")))
    [ { text = "Hello there", chunks = 2, delay_ms = 10 }, { finish = "stop" } ]

A table may also say `escapes = true`: JSON escapes in its texts are then read, for what TOML can't hold
(half a surrogate pair).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from engine.providers.lines import (
    ABOUT_REQUEST,
    LINES,
    Break,
    Call,
    Cut,
    Emit,
    Error,
    Event,
    Finish,
    Line,
    Move,
    OnClose,
    Reasoning,
    Result,
    ScriptError,
    SlowClose,
    Stall,
    Text,
    Unreachable,
    Wait,
)
from engine.records import JSON
from engine.shape import BAD, Decoder, Flaw, Path, kind_of, show

__all__ = [
    "LINES",
    "Break",
    "Call",
    "Cut",
    "Emit",
    "Error",
    "Event",
    "Finish",
    "Line",
    "Move",
    "OnClose",
    "Reasoning",
    "Reply",
    "Result",
    "ScriptError",
    "SlowClose",
    "Stall",
    "Text",
    "Unreachable",
    "Wait",
    "decode_reply",
    "parse_reply",
    "parse_script",
    "reply",
    "says",
]


@attrs.frozen(kw_only=True)
class Reply:
    """What one request is answered. Raises `ScriptError` for lines that could never be played."""

    lines: tuple[Line, ...]

    def __attrs_post_init__(self) -> None:
        for cls in ABOUT_REQUEST:
            if sum(isinstance(line, cls) for line in self.lines) > 1:
                raise ScriptError(f"{cls.leads} is given twice: once is enough for a request")
        spoken = [line for line in self.lines if not isinstance(line, ABOUT_REQUEST)]
        if self.unreachable is not None and (spoken or self.on_close is not None or self.close_ms):
            raise ScriptError(
                "a request that is unreachable says nothing else: the other lines are never played"
            )
        if any(isinstance(line, Cut) for line in spoken[:-1]):
            raise ScriptError("lines after a cut are never played")

    @property
    def unreachable(self) -> Unreachable | None:
        """Why the request can't be opened, if it can't."""
        return next((line for line in self.lines if isinstance(line, Unreachable)), None)

    @property
    def on_close(self) -> OnClose | None:
        """What closing the request raises, if it does."""
        return next((line for line in self.lines if isinstance(line, OnClose)), None)

    @property
    def close_ms(self) -> int:
        """How long closing the request takes, in milliseconds."""
        return next((line.close_ms for line in self.lines if isinstance(line, SlowClose)), 0)

    def moves(self) -> Iterator[Move]:
        """What the stream does, in order; waits of no length are left out."""
        played: dict[type[Line], int] = {}
        for line in self.lines:
            if isinstance(line, Unreachable | OnClose | SlowClose):
                continue
            nth = played[type(line)] = played.get(type(line), 0) + 1
            delay = 0 if isinstance(line, Stall) else line.delay_ms
            for move in (Wait(delay), *line.moves(nth)):
                if move != Wait(0):
                    yield move


def reply(*lines: Line) -> Reply:
    """`Reply(lines=lines)`, shorter."""
    return Reply(lines=lines)


def says(text: str) -> Reply:
    """The plainest reply: one text, then `stop`."""
    return reply(Text(text=text), Finish())


# --- from data ---------------------------------------------------------------------------------------


def decode_reply(decoder: Decoder, raw: Any, path: Path) -> Any:
    """A `Reply` from a list of tables; flaws go to `decoder`, and `BAD` comes back if there are any."""
    if not isinstance(raw, list | tuple):
        return decoder.flaw(path, f"must be a list of script lines, not {kind_of(raw)} ({show(raw)})")
    lines = tuple(_decode_line(decoder, item, (*path, index)) for index, item in enumerate(raw))
    if any(line is BAD for line in lines):
        return BAD
    try:
        return Reply(lines=lines)
    except ScriptError as exc:
        return decoder.flaw(path, str(exc))


def _decode_line(decoder: Decoder, raw: Any, path: Path) -> Any:
    if not isinstance(raw, Mapping) or "escapes" not in raw:
        return decoder.one_of(list(LINES), raw, path)
    rest = {key: value for key, value in raw.items() if key != "escapes"}
    if decoder.value(bool, raw["escapes"], (*path, "escapes")) is True:
        try:
            rest = _unescape(rest)
        except ValueError as exc:
            return decoder.flaw(path, f"escapes: {exc}")
    return decoder.one_of(list(LINES), rest, path)


def _unescape(value: Any) -> Any:
    """`value` with the JSON escapes in each of its texts read; keys stay as they are."""
    if isinstance(value, str):
        quoted = re.sub(
            r'\\.|"', lambda found: '\\"' if found[0] == '"' else found[0], value, flags=re.DOTALL
        )
        return json.loads(f'"{quoted}"', strict=False)
    if isinstance(value, list | tuple):
        return [_unescape(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _unescape(item) for key, item in value.items()}
    return value


def _where(where: str, path: Path) -> str:
    return where + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def _refuse(flaws: Sequence[Flaw], where: str) -> None:
    if flaws:
        told = (
            f"{_where(where, flaw.path)}: {flaw.message}" + (f" ({flaw.hint})" if flaw.hint else "")
            for flaw in flaws
        )
        raise ScriptError("\n".join(told))


def parse_reply(items: Sequence[Mapping[str, JSON]], where: str) -> Reply:
    """The reply that a list of tables says. Raises `ScriptError` with every flaw, each beginning with
    `where` and the place inside, such as `replies[0][2].tool`."""
    decoder = Decoder()
    decoded = decode_reply(decoder, items, ())
    _refuse(decoder.flaws, where)
    assert isinstance(decoded, Reply)
    return decoded


def parse_script(text: str, where: str = "script") -> tuple[Reply, ...]:
    """The replies of a TOML text `replies = [ [ …lines… ], … ]`. Raises `ScriptError`."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ScriptError(f"{where}: {exc}") from exc
    if list(data) != ["replies"] or not isinstance(data["replies"], list) or not data["replies"]:
        raise ScriptError(f"{where}: holds exactly one key, replies: a list of at least one reply")
    return tuple(
        parse_reply(items, f"{where}: replies[{index}]") for index, items in enumerate(data["replies"])
    )
