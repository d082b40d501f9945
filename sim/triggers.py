"""Triggers: at which gate an action or a fault fires, and the named windows around each commit.

`before_commit`: the write is queued. `after_commit`: committed, the hop not run. `notify`: a listener is
being told. `after_notify`: the publisher's next gate. The gate that fires a trigger is held until nothing
else can run, or the commit would win every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from sim.gate import Gate
from sim.kernel import Kernel
from sim.ledger import Ledger, Moment
from sim.scenario import OnDisk, OnEvent, OnGate
from sim.store import EventKey


@attrs.define(eq=False)
class Trip:
    """One armed trigger. `session_id` and `node` narrow an event trigger; None is any."""

    name: str
    when: OnEvent | OnGate | OnDisk
    session_id: str | None
    at_once: Callable[[], None] | None = None  #: done in the middle of the disk's operation that fires it
    fired: bool = False
    seen: int = 0
    waiting: Gate | None = None


class Triggers:
    """Looks at every gate that parks, notes the windows, and fires what is armed."""

    def __init__(self, kernel: Kernel, ledger: Ledger, moment: Callable[[], Moment]) -> None:
        self._kernel = kernel
        self._ledger = ledger
        self._moment = moment
        self._trips: list[Trip] = []
        self._told: dict[int, tuple[EventKey, ...]] = {}
        self._gates: dict[str | None, int] = {}

    @property
    def peeks(self) -> bool:
        """Whether some trigger needs to know what a queued write would commit."""
        return any(
            isinstance(trip.when, OnEvent) and trip.when.window == "before_commit" for trip in self._trips
        )

    def arm(self, name: str, when: OnEvent | OnGate | OnDisk, session_id: str | None) -> Trip:
        """Arm a trigger before the run begins."""
        trip = Trip(name=name, when=when, session_id=session_id)
        self._trips.append(trip)
        return trip

    async def wait(self, trip: Trip) -> None:
        """Wait until it fires."""
        if not trip.fired:
            trip.waiting = self._kernel.open_gate("armed", node=self._kernel.world, asleep=True)
            await trip.waiting.wait()

    def on_park(self, gate: Gate) -> bool:
        """The kernel's hook; True if a waiting action was woken."""
        windows = list(self._windows(gate)) if gate.info or self._told else ()
        for event, window in windows:
            self._ledger.windows.setdefault(event[0], {})[window] = None
        name = gate.node.name
        for counted in (None, name):
            self._gates[counted] = self._gates.get(counted, 0) + 1
        acted = False
        for trip in self._trips:
            if not trip.fired and self._hits(trip, gate, windows):
                self._fire(trip, gate)
                acted = True
        return acted

    def on_disk(self, operation: str, side: str, written: Sequence[tuple[str, str]], writer: str) -> None:
        """The disk's hook, at each of its operations; `written` are the (type, session id) of the events that
        `writer`, a node, is about to commit."""
        for trip in self._trips:
            when = trip.when
            if trip.fired or not isinstance(when, OnDisk) or (when.disk, when.side) != (operation, side):
                continue
            if not _concerns(trip, when, written) or when.node not in (None, writer):
                continue
            trip.seen += 1
            if trip.seen == when.nth:
                trip.fired = True
                self._ledger.fired[trip.name] = self._moment()
                if trip.at_once is not None:
                    trip.at_once()
                if trip.waiting is not None:
                    trip.waiting.wake()

    def _windows(self, gate: Gate) -> Iterator[tuple[EventKey, str]]:
        chain = id(gate.chain)
        for event in self._told.pop(chain, ()):
            yield event, "after_notify"
        window = gate.info.get("window")
        events: tuple[EventKey, ...] = gate.info.get("events", ())
        if window is None:
            return
        if window == "notify":
            self._told[chain] = events
        for event in events:
            if window == "after_commit":
                self._ledger.windows.setdefault(event[0], {})["before_commit"] = None
            yield event, window

    def _hits(self, trip: Trip, gate: Gate, windows: Sequence[tuple[EventKey, str]]) -> bool:
        when = trip.when
        if isinstance(when, OnDisk):
            return False
        if isinstance(when, OnGate):
            return self._gates.get(when.node, 0) == when.gate and when.node in (None, gate.node.name)
        if when.node not in (None, gate.node.name):
            return False
        for event, window in windows:
            if (event[0], window) == (when.event, when.window) and trip.session_id in (None, event[1]):
                trip.seen += 1
                if trip.seen == when.nth:
                    return True
        return False

    def _fire(self, trip: Trip, gate: Gate) -> None:
        trip.fired = True
        self._ledger.fired[trip.name] = self._moment()
        gate.hold()
        if trip.waiting is not None:
            trip.waiting.wake()


def _concerns(trip: Trip, when: OnDisk, written: Sequence[tuple[str, str]]) -> bool:
    """Whether one of these (type, session id) is what a trigger of the disk waits for."""
    if when.event is None and trip.session_id is None:
        return True
    return any(when.event in (None, kind) and trip.session_id in (None, one) for kind, one in written)
