"""Long commands show how far they are and can be stopped: Ctrl-C asks, and what was found so far is kept."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

from rich.console import Console
from rich.progress import Progress

STOPPING = b"stopping; what was found so far is kept (Ctrl-C once more: give up)\n"


@contextlib.contextmanager
def stopped_by_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Inside, the first Ctrl-C only makes the function that is given return True; the second one ends
    everything as usual."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)
        os.write(2, STOPPING)  # a stream could be in the middle of something

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Processes that are started inside never hear of Ctrl-C: a terminal sends it to all, and the command
    alone decides. What comes meanwhile reaches the command afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Patience:
    """A bar on a terminal, and whether to go on."""

    def __init__(self, bar: Progress, what: str, total: int | None, stopped: Callable[[], bool]) -> None:
        self._bar = bar
        self._task = bar.add_task(what, total=total)
        self.stopped = stopped

    def begin(self, what: str, total: int | None) -> None:
        """The next part of the work, under its own name."""
        self._bar.remove_task(self._task)
        self._task = self._bar.add_task(what, total=total)

    def told(self, done: int, of: int | None = None) -> bool:
        """So much is done (of so many, if that is known only now); False if somebody pressed Ctrl-C."""
        if of is not None:
            self._bar.update(self._task, total=of)
        self._bar.update(self._task, completed=done)
        return not self.stopped()


@contextlib.contextmanager
def patience(what: str, total: int | None = None) -> Iterator[Patience]:
    """For one long command: its bar, which is drawn on a terminal's standard error, and its Ctrl-C."""
    with (
        Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar,
        stopped_by_ctrl_c() as stopped,
    ):
        yield Patience(bar, what, total, stopped)
