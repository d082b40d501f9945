"""What can be chosen now, and what is due later: the one list of parked gates and waiting timers.

Entries come in hash order and in the order in which Trio happened to run tasks. They are therefore collected,
and sorted by key once nothing is runnable: the list is ordered by (round of arrival, key), so that the draw 0
is first in, first out.
"""

from __future__ import annotations

import heapq
import itertools

from sim.gate import Gate, Key, Node, NodeState, Timer
from sim.tape import Tape


class Agenda:
    """Holds every gate that is parked and every timer that is set, and draws the next one."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._arrivals: list[Gate | Timer] = []  # became choosable since the last choice, in no order
        self._ready: list[Gate | Timer] = []
        self._heap: list[tuple[int, Key, int, Gate | Timer]] = []
        self._pushes = itertools.count()
        self._held = 0
        self._paused = 0

    def __len__(self) -> int:
        """How many entries are choosable, those held and of paused nodes included."""
        return len(self._ready)

    def choose(self) -> Gate | Timer | None:
        """Draw one of the choosable entries; None if there is none."""
        if self._arrivals:
            arrived, self._arrivals = self._arrivals, []
            if len(arrived) > 1:
                arrived.sort(key=entry_key)
            self._ready += arrived
        ready = self._ready
        if not ready:
            return None
        if not (self._held or self._paused):
            return ready.pop(self._draw(ready))
        live = [entry for entry in ready if entry.node.state is NodeState.RUNNING]
        free = [entry for entry in live if not entry.held] or live
        if not free:
            return None
        entry = free[self._draw(free)]
        ready.remove(entry)
        self._held -= entry.held
        return entry

    def _draw(self, entries: list[Gate | Timer]) -> int:
        if self._tape.picker is None:
            return self._tape.draw("schedule", "pick", len(entries))
        return self._tape.pick([f"{entry.key[0]}/{entry.key[2]}" for entry in entries])

    def next_due(self) -> int | None:
        """The moment of the earliest timer or sleeper, in nanoseconds of true time."""
        heap = self._heap
        while heap and (heap[0][3].when_ns != heap[0][0] or heap[0][3].node.state is NodeState.DEAD):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now_ns: int) -> None:
        """Let everything arrive that is due."""
        while self._heap and self._heap[0][0] <= now_ns:
            when_ns, _, _, entry = heapq.heappop(self._heap)
            if entry.when_ns == when_ns:
                self.arrive(entry)

    def add(self, gate: Gate) -> None:
        """A gate that is choosable from the start."""
        self._arrivals.append(gate)

    def arrive(self, entry: Gate | Timer) -> None:
        """Make an asleep entry choosable, from the next choice on."""
        if entry.asleep and entry.node.state is not NodeState.DEAD:
            entry.asleep = False
            entry.when_ns = None
            self._arrivals.append(entry)

    def retract(self, entry: Gate | Timer) -> None:
        """Take back an arrival that wasn't chosen yet."""
        for queue in (self._arrivals, self._ready):
            if entry in queue:
                queue.remove(entry)
                entry.asleep = True

    def schedule(self, entry: Gate | Timer, when_ns: int | None) -> None:
        """Let an asleep entry arrive at that moment; None is never."""
        if not entry.asleep or entry.when_ns == when_ns:
            return
        entry.when_ns = when_ns
        if when_ns is not None:
            heapq.heappush(self._heap, (when_ns, entry.key, next(self._pushes), entry))

    def hold(self, gate: Gate) -> None:
        """Choose it only when nothing else can be, but before time moves."""
        self._held += not gate.held
        gate.held = True

    def set_state(self, node: Node, state: NodeState) -> None:
        """Pause, resume or bury a node."""
        self._paused += (state is NodeState.PAUSED) - (node.state is NodeState.PAUSED)
        node.state = state
        if state is NodeState.DEAD:
            self._ready = [entry for entry in self._ready if entry.node is not node]
            self._arrivals = [entry for entry in self._arrivals if entry.node is not node]
            for chain in node.chains():
                if chain.parked is not None and chain.parked.held:
                    chain.parked.held = False
                    self._held -= 1


def entry_key(entry: Gate | Timer) -> Key:
    """What entries are sorted by."""
    return entry.key
