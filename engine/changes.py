"""Hints that sessions changed: the latest seq for each, coalesced, and a call to sweep when they overflow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import attrs

from engine.doorbell import Bell
from engine.events import Stored
from engine.ports import Clock


@attrs.frozen
class Changed:
    """The session has events up to `seq`, or more by now."""

    session_id: str
    seq: int


@attrs.frozen
class SweepRequired:
    """Anything may have changed: look at every session that matters (see `Engine.sequences`)."""


Hint = Changed | SweepRequired


class Changes:
    """An endless iterator of hints; `SweepRequired` comes first, and whenever too many sessions changed."""

    def __init__(self, clock: Clock, keys_max: int) -> None:
        self._bell = Bell(clock)
        self._clock = clock
        self._keys_max = keys_max
        self._latest: dict[str, int] = {}
        self._sweep = True
        self._closed = False

    def note(self, stored: Sequence[Stored]) -> None:
        """Keep the latest seq of each session that got events."""
        for item in stored:
            if not self._sweep:
                self._latest[item.event.session_id] = item.seq
        if len(self._latest) > self._keys_max:
            self.sweep()
        self._bell.ring()

    def sweep(self) -> None:
        """Replace all hints by one call to sweep."""
        self._latest.clear()
        self._sweep = True
        self._bell.ring()

    def close(self) -> None:
        """End the iteration."""
        self._closed = True
        self._bell.ring()

    def __aiter__(self) -> Changes:
        return self

    async def __anext__(self) -> Hint:
        await self._clock.checkpoint()
        while True:
            self._bell.clear()
            if self._closed:
                raise StopAsyncIteration
            if self._sweep:
                self._sweep = False
                return SweepRequired()
            if self._latest:
                session_id = next(iter(self._latest))
                return Changed(session_id, self._latest.pop(session_id))
            await self._bell.wait()


class ChangeFeed:
    """The hint channels of one node, in the order in which they were opened."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[int, Changes] = {}
        self._next = 0

    @contextlib.contextmanager
    def subscribe(self, keys_max: int) -> Iterator[Changes]:
        """A channel while the block lasts; past `keys_max` changed sessions it asks for a sweep."""
        channel, number = Changes(self._clock, keys_max), self._next
        self._next += 1
        self._open[number] = channel
        try:
            yield channel
        finally:
            del self._open[number]

    def note(self, stored: Sequence[Stored]) -> None:
        """Tell every channel."""
        for channel in self._open.values():
            channel.note(stored)

    def sweep(self) -> None:
        """Something was committed elsewhere, to sessions that nobody names."""
        for channel in self._open.values():
            channel.sweep()

    def close(self) -> None:
        """End every channel."""
        for channel in self._open.values():
            channel.close()
