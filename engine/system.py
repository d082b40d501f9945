"""The real clock, ids and chance: the only place in `engine` that may ask the machine for them."""

from __future__ import annotations

import math
import random
import time
import uuid
from contextlib import AbstractContextManager
from types import TracebackType

import attrs
import trio

from engine.ports import Scope, System


@attrs.define
class _RealScope:
    _scope: trio.CancelScope

    def __enter__(self) -> Scope:
        self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return bool(self._scope.__exit__(kind, error, trace))

    @property
    def cancel_called(self) -> bool:
        return self._scope.cancel_called

    @property
    def cancelled_caught(self) -> bool:
        return self._scope.cancelled_caught

    def cancel(self) -> None:
        self._scope.cancel()

    def extend(self, deadline: float) -> None:
        self._scope.deadline = max(self._scope.deadline, deadline)

    def move(self, deadline: float) -> None:
        self._scope.deadline = deadline


class RealClock:
    """The machine's wall clock, and Trio's clock as the monotonic one."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return trio.current_time()

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(max(0.0, seconds))

    async def checkpoint(self) -> None:
        await trio.lowlevel.checkpoint()

    def scope(
        self, deadline: float = math.inf, *, shield: bool = False
    ) -> AbstractContextManager[Scope, bool]:
        assert not (shield and math.isinf(deadline)), "a shield is always bounded"
        return _RealScope(trio.CancelScope(deadline=deadline, shield=shield))


class RealIds:
    """Random ids of 128 bits."""

    def new(self, prefix: str) -> str:
        return f"{prefix}_{uuid.uuid4().hex}"


class RealChance:
    """The machine's random source."""

    def fraction(self) -> float:
        return random.random()


def real_system() -> System:
    """The surroundings of a node in production."""
    return System(clock=RealClock(), ids=RealIds(), chance=RealChance())
