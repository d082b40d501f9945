"""Ctrl-C at whatever instruction, for the tests of what it may tear."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import trio

Strike = Callable[[float], object]


def struck_anywhere(test: Any) -> Any:
    """A Ctrl-C between a call and its `await`, or inside a callback of the collector, is Python's own gap: it
    leaves a coroutine that was never awaited, or an error that nobody can catch."""
    for ignored in (
        "ignore:coroutine .* was never awaited",
        "ignore::pytest.PytestUnraisableExceptionWarning",
    ):
        test = pytest.mark.filterwarnings(ignored)(test)
    return test


@contextlib.contextmanager
def striking() -> Iterator[Strike]:
    """`strike(seconds)`: a Ctrl-C after that time, at whatever instruction the main thread is then.

    It is an alarm that does what Trio's handler of SIGINT does, so that one that comes too late, when no Trio
    runs any more, is none.
    """

    def on_alarm(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and handler is not signal.default_int_handler:
            handler(signal.SIGINT, frame)

    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def interrupted(main: Callable[[], Awaitable[None]]) -> bool:
    """Run it; whether it ended with a Ctrl-C. Whatever else comes out is raised."""
    try:
        trio.run(main)
    except BaseException as exc:
        if not _is_interrupt(exc):
            raise
        return True
    return False


def _is_interrupt(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_interrupt(inner) for inner in error.exceptions)
    return isinstance(error, KeyboardInterrupt)
