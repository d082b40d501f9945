"""Doorbells: coalescing signals that say "look again", never what there is to see."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import attrs
import trio

from engine.ports import Clock

ELSEWHERE = ""
"""The key of bells that ring only for what others commit, never for this node's own work."""


class Bell:
    """One waiter's bell. A ring while nobody waits is kept, so none is lost between a read and a wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = trio.Event()

    def ring(self) -> None:
        """Wake the waiter, now or as soon as it waits."""
        self._rung.set()

    def clear(self) -> None:
        """Forget earlier rings; do this *before* the read that they ask for."""
        if self._rung.is_set():
            self._rung = trio.Event()

    async def wait(self) -> None:
        """Wait for a ring."""
        await self._rung.wait()
        await self._clock.checkpoint()


@attrs.define
class Doorbells:
    """The bells of one node, by session. Dicts, not sets: ringing must be in a reproducible order."""

    _clock: Clock
    _bells: dict[str, dict[int, Bell]] = attrs.field(factory=dict)
    _next: int = 0

    @contextlib.contextmanager
    def bell(self, session_id: str) -> Iterator[Bell]:
        """A bell that rings at each commit of the session while the block lasts."""
        bell, number = Bell(self._clock), self._next
        self._next += 1
        self._bells.setdefault(session_id, {})[number] = bell
        try:
            yield bell
        finally:
            mine = self._bells[session_id]
            del mine[number]
            if not mine:
                del self._bells[session_id]

    def ring(self, session_id: str) -> None:
        """Ring the session's bells."""
        for bell in self._bells.get(session_id, {}).values():
            bell.ring()

    def ring_all(self) -> None:
        """Ring every bell: something was committed elsewhere."""
        for session_id in self._bells:
            self.ring(session_id)
