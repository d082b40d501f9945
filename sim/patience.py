"""Long commands can be stopped: Ctrl-C asks, and what was found so far is kept."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stopped_by_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Inside, the first Ctrl-C only makes the function that is given return True; the second one ends
    everything as usual."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
