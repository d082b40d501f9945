"""A clock moved by hand, for tests of what waits."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import trio

from engine.ports import Scope


class HandScope:
    """A scope that only remembers its deadline."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.cancel_called = False
        self.cancelled_caught = False

    def __enter__(self) -> Scope:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def cancel(self) -> None:
        """Note the cancellation."""
        self.cancel_called = True

    def extend(self, deadline: float) -> None:
        """Move the deadline later."""
        self.deadline = max(self.deadline, deadline)

    def move(self, deadline: float) -> None:
        """Move the deadline."""
        self.deadline = deadline


class HandClock:
    """Stands still until `now` is set."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def now_ms(self) -> int:
        """The same reading as the monotonic clock."""
        return int(self.now * 1000)

    def monotonic(self) -> float:
        """The reading set by hand."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Move the clock instead of waiting."""
        self.now += seconds
        await trio.lowlevel.checkpoint()

    async def checkpoint(self) -> None:
        """Let others run."""
        await trio.lowlevel.checkpoint()

    def scope(
        self, deadline: float = math.inf, *, shield: bool = False
    ) -> AbstractContextManager[Scope, Any]:
        """A scope that never fires by itself."""
        return HandScope(deadline)
