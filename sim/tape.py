"""The choice tape: every decision a simulated run makes is one draw from it, and all draws are kept.

A run is a function of its tape. A seed is one way to fill a tape; a recorded list of draws is another. The
value 0 is always the plainest choice: first in first out, no fault, no skew. So a failure is made smaller by
turning draws into 0, and a tape that is too short simply goes on with zeros.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

STREAMS = ("schedule", "faults", "clocks", "provider", "store")
"""Consumers that never disturb each other: a draw more in one leaves the others' values as they are."""

Source = Callable[[str, str, int], int]
"""`(stream, label, bound) -> value` with 0 <= value < bound; asked only when bound is at least 2."""


Picker = Callable[[Sequence[str]], int]
"""`(names of the tasks that could go next, oldest first) -> index of the one that does`."""


class Draw(NamedTuple):
    """One decision: which of `bound` possibilities (0 to bound - 1) was taken, and what it was about."""

    label: str
    bound: int
    value: int


class TapeError(ValueError):
    """A tape file isn't one, or a source answered outside its bound. The message says what was found."""


class Tape:
    """Answers draws from a source and records them, stream by stream."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.picker: Picker | None = None  #: draws the schedule instead, knowing who could go next
        self.draws: dict[str, list[Draw]] = {stream: [] for stream in STREAMS}

    @classmethod
    def fifo(cls) -> Tape:
        """The tape of zeros."""
        return cls(lambda stream, label, bound: 0)

    @classmethod
    def seeded(cls, seed: int | str) -> Tape:
        """A tape filled from one generator per stream; equal on every machine and Python version."""
        # A text seed is hashed with SHA-512, so PYTHONHASHSEED plays no part; `random()` alone is promised
        # to stay the same between Python versions.
        generators = {stream: random.Random(f"{seed}/{stream}") for stream in STREAMS}
        return cls(lambda stream, label, bound: int(generators[stream].random() * bound))

    @classmethod
    def replay(cls, draws: Mapping[str, Sequence[Draw | int]]) -> Tape:
        """A tape that begins with these values and goes on with zeros.

        A value that is too large for its bound here (the run went another way) is cut to the greatest
        possible one, so that every list of numbers is a tape.
        """
        _check_streams(draws)
        forced = {stream: _values(draws.get(stream, ())) for stream in STREAMS}
        used = dict.fromkeys(STREAMS, 0)

        def source(stream: str, label: str, bound: int) -> int:
            position = used[stream]
            used[stream] = position + 1
            values = forced[stream]
            return min(values[position], bound - 1) if position < len(values) else 0

        return cls(source)

    def draw(self, stream: str, label: str, bound: int) -> int:
        """A value from 0 to `bound` - 1. A bound of 1 is no decision and isn't recorded."""
        if bound <= 1:
            assert bound == 1, f"{label}: a draw needs at least one possibility"
            return 0
        value = self._source(stream, label, bound)
        if not 0 <= value < bound:
            raise TapeError(f"{stream}/{label}: {value} isn't between 0 and {bound - 1}")
        self.draws[stream].append(Draw(label, bound, value))
        return value

    def pick(self, names: Sequence[str]) -> int:
        """Which of the tasks that could go next does, oldest first. Recorded in the stream `schedule`."""
        bound = len(names)
        if self.picker is None or bound <= 1:
            return self.draw("schedule", "pick", bound)
        value = self.picker(names)
        assert 0 <= value < bound, f"{value} isn't between 0 and {bound - 1}"
        self.draws["schedule"].append(Draw("pick", bound, value))
        return value

    def happens(self, stream: str, label: str, per_mille: int) -> bool:
        """True in `per_mille` of a thousand draws; the value 0 is always False."""
        assert 0 <= per_mille <= 999, f"{label}: 0 to 999 per mille, since 0 on the tape means no"
        return self.draw(stream, label, 1000) >= 1000 - per_mille

    def values(self) -> dict[str, list[int]]:
        """The recorded values alone, as `replay` takes them; trailing zeros are left out."""
        return {stream: _trimmed([draw.value for draw in draws]) for stream, draws in self.draws.items()}

    def changed(self) -> int:
        """How many draws aren't the default."""
        return sum(draw.value != 0 for draws in self.draws.values() for draw in draws)

    def to_json(self) -> str:
        """The recorded draws as JSON: `{"version": 1, "draws": {stream: [[label, bound, value], …]}}`."""
        return json.dumps({"version": 1, "draws": self.draws}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Tape:
        """The tape that replays what `to_json` wrote. Raises `TapeError`."""
        try:
            whole = json.loads(text)
        except ValueError as exc:
            raise TapeError(f"a tape is JSON: {exc}") from exc
        if (
            not isinstance(whole, dict)
            or whole.get("version") != 1
            or not isinstance(whole.get("draws"), dict)
        ):
            raise TapeError('a tape is {"version": 1, "draws": {…}}')
        return cls.replay(
            {stream: [_read_draw(stream, item) for item in draws] for stream, draws in whole["draws"].items()}
        )


def _check_streams(draws: Mapping[str, object]) -> None:
    for stream in draws:
        if stream not in STREAMS:
            raise TapeError(f"unknown stream {stream!r}; the streams are {', '.join(STREAMS)}")


def _values(draws: Sequence[Draw | int]) -> list[int]:
    values = [draw if isinstance(draw, int) else draw.value for draw in draws]
    for value in values:
        if value < 0:
            raise TapeError(f"a draw's value is at least 0, not {value}")
    return values


def _trimmed(values: list[int]) -> list[int]:
    while values and values[-1] == 0:
        values.pop()
    return values


def _read_draw(stream: str, item: object) -> Draw:
    match item:
        case [str(label), int(bound), int(value)] if 0 <= value < bound:
            return Draw(label, bound, value)
    raise TapeError(f"{stream}: a draw is [label, bound, value] with 0 <= value < bound, not {item!r}")
