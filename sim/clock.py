"""One node's clocks, wrong in the ways that clocks are wrong, over the one true time of the kernel.

The wall clock is true time plus an offset, a drift, steps and slews; it may be wrong for a while after each
boot. The monotonic clock starts at 0 with the node's incarnation, runs at a rate of its own, and stands still
while the machine is suspended, or goes on, as the machine has it. Sleeps and scopes follow it: when its rate
changes or it stops, every timer is moved to where it is due then.

A leap second that the clock shows twice is a step of -1000 ms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

import attrs
import trio

from sim.gate import Gate, Node, Timer
from sim.kernel import NS_PER_MS, NS_PER_S, Kernel, ns_at

PPM = 1_000_000


class StepSpec(Protocol):
    """At `at_s` of true time the wall clock jumps by `by_ms`."""

    @property
    def at_s(self) -> float: ...
    @property
    def by_ms(self) -> int: ...


class ClockSpec(Protocol):
    """How wrong a node's clocks are: wall minus true time, and both rates in parts per million; and how much
    more the wall clock is off at each boot, until it is corrected `boot_for_s` later."""

    @property
    def offset_ms(self) -> int: ...
    @property
    def drift_ppm(self) -> int: ...
    @property
    def monotonic_ppm(self) -> int: ...
    @property
    def steps(self) -> Sequence[StepSpec]: ...
    @property
    def boot_offset_ms(self) -> int: ...
    @property
    def boot_for_s(self) -> float: ...


@attrs.frozen(kw_only=True)
class RightClock:
    """The spec of clocks that are right."""

    offset_ms: int = 0
    drift_ppm: int = 0
    monotonic_ppm: int = 0
    steps: tuple[StepSpec, ...] = ()
    boot_offset_ms: int = 0
    boot_for_s: float = 0.0


class WallClock:
    """A machine's wall clock: it outlives the incarnations of the node that runs there."""

    def __init__(self, spec: ClockSpec) -> None:
        self._offset_ns = spec.offset_ms * NS_PER_MS
        self._drift_ppm = spec.drift_ppm
        # (from, by, over): an adjustment that is spread over a while; a step takes no time at all
        self._moves = [(ns_at(step.at_s), step.by_ms * NS_PER_MS, 0) for step in spec.steps]
        self._boot_offset_ns = spec.boot_offset_ms * NS_PER_MS
        self._boot_for_ns = ns_at(spec.boot_for_s)
        self._boots: list[tuple[int, int]] = []  # (from, until): when it showed what it boots with

    def boot(self, now_ns: int) -> None:
        """The machine boots: a clock without a battery is wrong until something corrects it."""
        if self._boot_offset_ns:
            self._boots.append((now_ns, now_ns + self._boot_for_ns))

    def adjust(self, now_ns: int, by_ms: int, over_s: float = 0.0) -> None:
        """Step, or slew over that many seconds, from now on."""
        self._moves.append((now_ns, by_ms * NS_PER_MS, ns_at(over_s)))

    def read_ms(self, now_ns: int) -> int:
        """What it shows at that moment of true time."""
        wall_ns = now_ns + self._offset_ns + now_ns * self._drift_ppm // PPM
        for from_ns, by_ns, over_ns in self._moves:
            since_ns = now_ns - from_ns
            if since_ns >= over_ns:
                wall_ns += by_ns
            elif since_ns > 0:
                wall_ns += by_ns * since_ns // over_ns
        if any(from_ns <= now_ns < until_ns for from_ns, until_ns in self._boots):
            wall_ns += self._boot_offset_ns  # once, even if it boots again before it was corrected
        return wall_ns // NS_PER_MS


class NodeClock:
    """`engine.ports.Clock` for one incarnation of a node."""

    def __init__(
        self, kernel: Kernel, node: Node, spec: ClockSpec | None = None, *, wall: WallClock | None = None
    ) -> None:
        spec = spec or RightClock()
        self._kernel = kernel
        self._node = node
        self.wall = wall or WallClock(spec)
        self._rate = PPM + spec.monotonic_ppm
        assert self._rate >= 0, "a monotonic clock never goes back"
        self._true_base_ns = kernel.now_ns
        self._base_ns = 0
        self._stopped = False
        self._due: dict[Gate | Timer, int] = {}  # what is due at which reading of the monotonic clock

    # --- the port ------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        value = self.wall_ms()
        self._kernel.note("clock", self._node, "now_ms", value=value)
        return value

    def monotonic(self) -> float:
        value = self.monotonic_ns() / NS_PER_S
        self._kernel.note("clock", self._node, "monotonic", value=value)
        return value

    async def sleep(self, seconds: float) -> None:
        if self._kernel.frozen:
            await self._kernel.refuse()
        self._kernel.note("clock", self._node, "sleep", seconds=seconds)
        if seconds <= 0:
            await self._kernel.gate("sleep", node=self._node)
            return
        gate = self._kernel.open_gate("sleep", node=self._node, asleep=True)
        self._follow(gate, math.inf if math.isinf(seconds) else self.monotonic_ns() + ns_at(seconds))
        try:
            await gate.wait()
        finally:
            self._due.pop(gate, None)

    async def checkpoint(self) -> None:
        await self._kernel.gate("checkpoint", node=self._node)

    def scope(self, deadline: float = math.inf, *, shield: bool = False) -> SimScope:
        return SimScope(self, deadline, shield)

    # --- for the world: readings without a trace, and faults -----------------------------------------

    def wall_ms(self) -> int:
        """The wall clock, in milliseconds."""
        return self.wall.read_ms(self._kernel.now_ns)

    def monotonic_ns(self) -> int:
        """The monotonic clock, in nanoseconds."""
        if self._stopped:
            return self._base_ns
        return self._base_ns + (self._kernel.now_ns - self._true_base_ns) * self._rate // PPM

    def step(self, by_ms: int) -> None:
        """The wall clock jumps."""
        self.wall.adjust(self._kernel.now_ns, by_ms)

    def slew(self, by_ms: int, over_s: float) -> None:
        """The wall clock is moved gradually."""
        self.wall.adjust(self._kernel.now_ns, by_ms, over_s)

    def set_monotonic_ppm(self, ppm: int) -> None:
        """Let the monotonic clock run at another rate from now on."""
        assert ppm >= -PPM, "a monotonic clock never goes back"
        self._rebase()
        self._rate = PPM + ppm
        self._move_all()

    def stop_monotonic(self) -> None:
        """The monotonic clock stands still; the wall clock goes on."""
        self._rebase()
        self._stopped = True
        self._move_all()

    def start_monotonic(self) -> None:
        """The monotonic clock goes on from where it stood."""
        self._rebase()
        self._stopped = False
        self._move_all()

    # --- timers on the monotonic clock ---------------------------------------------------------------

    def _rebase(self) -> None:
        self._base_ns = self.monotonic_ns()
        self._true_base_ns = self._kernel.now_ns

    def _follow(self, entry: Gate | Timer, due_ns: float) -> None:
        if math.isinf(due_ns):
            self._due.pop(entry, None)
            entry.move(None)
            return
        self._due[entry] = int(due_ns)
        entry.move(self._true_ns(int(due_ns)))

    def _move_all(self) -> None:
        for entry, due_ns in self._due.items():
            entry.move(self._true_ns(due_ns))

    def _true_ns(self, due_ns: int) -> int | None:
        """The first moment of true time at which the monotonic clock shows `due_ns`; None is never."""
        if due_ns <= self._base_ns:
            return self._true_base_ns
        if self._stopped or self._rate == 0:
            return None
        return self._true_base_ns - (self._base_ns - due_ns) * PPM // self._rate


class SimScope:
    """`engine.ports.Scope`: a plain cancel scope, and a timer that cancels it."""

    def __init__(self, clock: NodeClock, deadline: float, shield: bool) -> None:
        assert not (shield and math.isinf(deadline)), "a shield is always bounded"
        self._clock = clock
        self._deadline = deadline
        self._scope = trio.CancelScope(shield=shield)
        self._timer: Timer | None = None

    def __enter__(self) -> SimScope:
        kernel, node = self._clock._kernel, self._clock._node
        kernel.note("clock", node, "scope", deadline=self._deadline, shield=self._scope.shield)
        self._scope.__enter__()
        if self._scope.shield:
            node.shields[self._scope] = None
        if self._late():
            self._scope.cancel()
        else:
            self.move(self._deadline)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self._timer is not None:
            self._timer.cancel()
            self._clock._due.pop(self._timer, None)
        self._clock._node.shields.pop(self._scope, None)
        return bool(self._scope.__exit__(kind, error, traceback))

    def _late(self) -> bool:
        return self._clock.monotonic_ns() / NS_PER_S >= self._deadline

    @property
    def cancel_called(self) -> bool:
        if self._late():
            self._scope.cancel()
        return self._scope.cancel_called

    @property
    def cancelled_caught(self) -> bool:
        return self._scope.cancelled_caught

    def cancel(self) -> None:
        self._scope.cancel()

    def extend(self, deadline: float) -> None:
        if deadline > self._deadline:
            self.move(deadline)

    def move(self, deadline: float) -> None:
        self._deadline = deadline
        endless = math.isinf(deadline)
        if self._timer is None and not endless:
            clock = self._clock
            self._timer = clock._kernel.at(None, self._scope.cancel, node=clock._node, label="deadline")
        if self._timer is not None:
            self._clock._follow(self._timer, math.inf if endless else ns_at(deadline))
