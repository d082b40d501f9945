"""Counters of one node, and the port through which they can leave it (to OpenTelemetry, say)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from engine.events import Stored
from engine.ports import StoreHealth


class MetricsObserver(Protocol):
    """Told of each count as it happens, on the Trio thread; it must not raise, block or await."""

    def count(self, name: str, amount: int) -> None:
        """`name` is an event type, or one of the names in `Metrics`."""


@attrs.frozen(kw_only=True)
class MetricsSnapshot:
    """Counts since the engine was opened. `events` are committed by this node, by type."""

    events: Mapping[str, int]
    claims_lost: int
    interrupts: int
    listener_failures: int
    sessions_active: int
    writes_queued: int


@attrs.frozen(kw_only=True)
class Health:
    """Whether the node can do its work. `problems` are sentences; none means that it is well."""

    store: StoreHealth
    closing: bool
    problems: Sequence[str]

    @property
    def ok(self) -> bool:
        """True if there is nothing to report."""
        return not self.problems


class Metrics:
    """The counters themselves; parts of the engine call `count`."""

    CLAIMS_LOST = "claims_lost"
    INTERRUPTS = "interrupts"
    LISTENER_FAILURES = "listener_failures"

    def __init__(self, observer: MetricsObserver | None = None) -> None:
        self._observer = observer
        self._counts: dict[str, int] = {}

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        self._counts[name] = self._counts.get(name, 0) + amount
        if self._observer is not None:
            self._observer.count(name, amount)

    def committed(self, stored: Sequence[Stored]) -> None:
        """Count what one work committed."""
        for item in stored:
            self.count(item.type)

    def snapshot(self, *, active: int, queued: int) -> MetricsSnapshot:
        """The counts now."""
        own = (self.CLAIMS_LOST, self.INTERRUPTS, self.LISTENER_FAILURES)
        return MetricsSnapshot(
            events={name: count for name, count in sorted(self._counts.items()) if name not in own},
            claims_lost=self._counts.get(self.CLAIMS_LOST, 0),
            interrupts=self._counts.get(self.INTERRUPTS, 0),
            listener_failures=self._counts.get(self.LISTENER_FAILURES, 0),
            sessions_active=active,
            writes_queued=queued,
        )
