"""Gates and the quiescence clock: one task runs at a time, in an order that the tape decides.

Every port call parks its task at a gate. Trio asks its clock how long to sleep only when nothing is runnable;
at that moment the kernel, which is that clock, draws one parked gate and reschedules its task. When no gate
can be chosen, virtual time moves to the next timer. Nothing ever waits in real time.

Why a run is a function of its tape: Trio shuffles tasks that became runnable together, and the order of a
cancellation's abort functions follows the hash order of sets. So nothing here depends on the order in which
tasks park, wake or abort: whatever happened since the last choice is sorted by key before it is looked at,
and a key names a task by its node and its own name, never by an address or a global counter.

The rule for code that runs here: a started or woken task passes a gate before it touches what others touch.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

import outcome
import trio

from sim import guard
from sim.agenda import Agenda, entry_key
from sim.gate import Deadlock, Gate, Node, NodeState, PowerCut, RunTooLong, SimulationError, Timer
from sim.roster import Roster
from sim.tape import Tape
from sim.trace import Trace

T = TypeVar("T")

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

_REAL_WAITS_CHECKED_EVERY = 64
_NO_INFO: Mapping[str, Any] = {}


def ns_at(seconds: float) -> int:
    """The first whole nanosecond that isn't before `seconds` when it is read back as a float."""
    ns = math.ceil(seconds * NS_PER_S)
    while ns / NS_PER_S < seconds:
        ns += 1
    return ns


OnPark = Callable[[Gate], bool | None]
"""Told of each gate that parked, in an order that is the same in every run of the tape.

It is called in the clock, when no task is runnable, so it may hold gates, draw, cancel scopes, stop nodes and
set timers. It returns True if it may have made a task runnable.
"""


class Kernel(trio.abc.Clock):
    """The clock of a simulated run, and the only scheduler of its tasks.

    `gates_max` bounds the gates chosen, `time_ms_max` virtual time, `turns_max` how many turns Trio's loop
    may take without coming to rest. `error` is what ended the run early.
    """

    def __init__(
        self,
        tape: Tape,
        trace: Trace,
        *,
        gates_max: int = 1_000_000,
        time_ms_max: int = 10 * 365 * 86_400_000,
        turns_max: int = 100_000,
    ) -> None:
        self.tape = tape
        self.trace = trace
        self.now_ns = 0
        self.frozen = False
        self.error: BaseException | None = None
        self.on_park: OnPark | None = None
        self.gates_parked = 0
        self.gates_chosen = 0
        self.roster = Roster(trace, self.fail)
        self._agenda = Agenda(tape)
        self._gates_max, self._time_ns_max, self._turns_max = gates_max, time_ms_max * NS_PER_MS, turns_max
        self._fresh: list[Gate] = []  # parked since the last choice, in no particular order
        self._doomed: list[Node] = []
        self._turns = 0
        self._in_clock = False
        self._ended = False
        self._root = trio.CancelScope()
        self._watchdog: trio.lowlevel.Task | None = None
        self._main_task: trio.lowlevel.Task | None = None

    @property
    def now_ms(self) -> float:
        """True time in milliseconds since the run began."""
        return self.now_ns / NS_PER_MS

    @property
    def world(self) -> Node:
        """The node of what belongs to no node."""
        return self.roster.world

    # --- running -------------------------------------------------------------------------------------

    def run(self, main: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run `main(*args)` under this clock and return its value.

        Raises what it raises; what ended the run early (`Deadlock`, `RunTooLong` …) takes precedence.
        """
        values: list[T] = []
        try:
            trio.run(self._main, main, args, values, clock=self)
        except BaseException as exc:
            if self.error is None or self.error is exc:
                raise
            raise self.error from exc
        if self.error is not None:
            raise self.error
        return values[0]

    async def _main(self, main: Callable[..., Awaitable[T]], args: tuple[Any, ...], values: list[T]) -> None:
        self._main_task = trio.lowlevel.current_task()
        guard.occupy_threads(self)
        self._watchdog = trio.lowlevel.spawn_system_task(self._watch)
        try:
            with self._root:
                values.append(await main(*args))
            if not self.frozen:
                guard.check_real_waits()
                self.roster.write_all_notes()
        finally:
            self._ended = True

    async def _watch(self) -> None:
        await trio.lowlevel.wait_task_rescheduled(lambda raise_cancel: trio.lowlevel.Abort.SUCCEEDED)
        self.freeze(self._root)

    def fail(self, error: BaseException) -> None:
        """End the run with `error`, whatever the simulated code does about exceptions."""
        if self.error is None:
            self.error = error
        if self._watchdog is None:
            raise error  # it is at work already, or was never started
        task, self._watchdog = self._watchdog, None
        trio.lowlevel.reschedule(task)

    def freeze(self, *scopes: trio.CancelScope) -> None:
        """End the world: cancel `scopes`, let every parked task unwind, refuse every port from now on."""
        for scope in scopes:
            scope.cancel()
        if not self.frozen:
            self.roster.write_all_notes()
        self.frozen = True
        self.trace.close()
        for node in self.roster.nodes:
            for scope in list(node.shields):
                scope.shield = False
            for gate in [chain.parked for chain in node.chains()]:
                if gate is not None:
                    gate.result = outcome.Error(PowerCut())
                    _release(gate, cancelled=gate.raise_cancel is not None)

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Drop whatever is raised inside once the world is frozen: it means nothing then."""
        try:
            yield
        except BaseException:
            if not self.frozen:
                raise

    # --- the clock that Trio asks --------------------------------------------------------------------

    def start_clock(self) -> None:
        """Nothing to do: virtual time begins at 0."""

    def current_time(self) -> float:
        """Virtual time in seconds. Trio asks once in every turn of its loop, which is counted here."""
        self._turns += 1
        if self._turns > self._turns_max and not self._ended:
            self._turns = 0
            self.fail(RunTooLong(f"{self._turns_max} turns of the loop without a gate:\n{self.describe()}"))
        return self.now_ns / NS_PER_S

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Called by Trio when no task is runnable: choose what runs next. Never sleeps."""
        self._turns = 0
        self._in_clock = True
        try:
            self._rest(deadline)
        except BaseException as exc:
            # Let through, it would be an internal error of Trio's, and no `finally` would run.
            self.fail(exc)
        finally:
            self._in_clock = False
        return 0.0

    def _rest(self, deadline: float) -> None:
        if self._ended:
            return  # Trio takes itself down, which needs a real look at its own wake-up socket
        if self.frozen:
            self._rest_frozen(deadline)
            return
        acted = self._meet_fresh()
        while self._doomed:
            self.kill(self._doomed.pop(0))
        if acted:
            return
        entry = self._agenda.choose()
        while entry is None:
            if not self._advance(deadline):
                return
            entry = self._agenda.choose()
        self._resume(entry)

    def _rest_frozen(self, deadline: float) -> None:
        if math.isinf(deadline):
            raise SimulationError(f"the world is frozen, but these tasks don't unwind:\n{self.describe()}")
        self._set_time(max(self.now_ns, ns_at(deadline)))

    def _meet_fresh(self) -> bool:
        """Number the gates that parked, write their tasks' notes, tell the hook; True if it acted."""
        fresh, self._fresh = self._fresh, []
        if len(fresh) > 1:
            fresh.sort(key=entry_key)
        acted = False
        for gate in fresh:
            gate.index = self.gates_parked
            self.gates_parked += 1
            self.roster.write_notes(gate.chain)
            if self.on_park is not None and gate.node.state is not NodeState.DEAD:
                acted = bool(self.on_park(gate)) or acted
        return acted

    def _resume(self, entry: Gate | Timer) -> None:
        name, others = entry.node.key, len(self._agenda)
        _, _, task, label, nth = entry.key
        if isinstance(entry, Timer):
            self.trace.record("timer", name, task, label, nth=nth, others=others)
            entry.callback()
            return
        self.gates_chosen += 1
        if self.gates_chosen > self._gates_max:
            raise RunTooLong(f"more than {self._gates_max} gates, the last is {entry}:\n{self.describe()}")
        if self.gates_chosen % _REAL_WAITS_CHECKED_EVERY == 0:
            guard.check_real_waits()
        cancelled = entry.deliver_cancel and entry.raise_cancel is not None
        self.trace.record("gate", name, task, label, nth=nth, others=others, cancelled=cancelled)
        _release(entry, cancelled=cancelled)

    def _advance(self, deadline: float) -> bool:
        """Move virtual time to what is due next; False if that is a deadline of Trio's own."""
        due = self._agenda.next_due()
        if due is None and math.isinf(deadline):
            raise Deadlock(f"nothing can run, and no timer is left:\n{self.describe()}")
        if due is None or deadline * NS_PER_S <= due:
            self._set_time(max(self.now_ns, ns_at(deadline)))
            return False
        self._set_time(max(self.now_ns, due))
        self._agenda.take_due(self.now_ns)
        return True

    def _set_time(self, now_ns: int) -> None:
        if now_ns > self._time_ns_max:
            bound = self._time_ns_max // NS_PER_MS
            raise RunTooLong(f"virtual time would pass {bound} ms:\n{self.describe()}")
        self.now_ns = now_ns
        self.trace.now_ns = now_ns

    def describe(self) -> str:
        """Who waits for what, one line each."""
        return guard.describe(self.roster.nodes, self._main_task, self.now_ms)

    # --- nodes ---------------------------------------------------------------------------------------

    def add_node(self, name: str) -> Node:
        """The next incarnation of the node of this name, counted from 1."""
        return self.roster.add_node(name)

    def pause(self, node: Node) -> None:
        """Choose none of its gates and timers until `resume`."""
        if node.state is NodeState.RUNNING:
            self._set_state(node, NodeState.PAUSED)

    def resume(self, node: Node) -> None:
        """Go on; timers that came due meanwhile fire now."""
        if node.state is NodeState.PAUSED:
            self._set_state(node, NodeState.RUNNING)

    def kill(self, node: Node) -> None:
        """Cut the node's power: none of its code runs again.

        Only from the clock (a timer, `on_park`), where none of its tasks is runnable.
        """
        assert self._in_clock, "a node is killed from the clock; elsewhere use kill_when_parked"
        assert not guard.runnable(), "a task that was just woken would still run"
        if node.state is not NodeState.DEAD:
            self._set_state(node, NodeState.DEAD)

    def kill_when_parked(self, node: Node) -> None:
        """Cut its power as soon as nothing is runnable."""
        self._doomed.append(node)

    def _set_state(self, node: Node, state: NodeState) -> None:
        self._agenda.set_state(node, state)
        self.trace.record("node", node.key, "", state.value)

    # --- gates, timers, notes ------------------------------------------------------------------------

    async def gate(
        self, label: str, *, node: Node, deliver_cancel: bool = True, info: Mapping[str, Any] = _NO_INFO
    ) -> None:
        """Park the current task until it is chosen."""
        if self.frozen:
            await self.refuse()
        await self.open_gate(label, node=node, deliver_cancel=deliver_cancel, info=info).wait()

    async def sleep_until(self, when_ns: int, *, node: Node, label: str = "sleep") -> None:
        """Park the current task at least until then. A cancelled sleeper is due at once."""
        if self.frozen:
            await self.refuse()
        await self.open_gate(label, node=node, asleep=True, when_ns=when_ns).wait()

    def open_gate(
        self,
        label: str,
        *,
        node: Node,
        deliver_cancel: bool = True,
        info: Mapping[str, Any] = _NO_INFO,
        asleep: bool = False,
        when_ns: int | None = None,
    ) -> Gate:
        """A gate for the current task, which must `wait` at it before it awaits anything else."""
        if self.frozen:
            raise PowerCut
        chain = self.roster.chain(node)
        assert chain.parked is None, f"{chain.parked} was opened and never waited at"
        gate = Gate(self._agenda, chain, chain.next_key(label), info, deliver_cancel, asleep)
        chain.parked = gate
        self._fresh.append(gate)
        if not asleep:
            self._agenda.add(gate)
        elif when_ns is not None:
            self._agenda.schedule(gate, when_ns)
        return gate

    def at(
        self,
        when_ns: int | None,
        callback: Callable[[], None],
        *,
        node: Node | None = None,
        label: str = "timer",
    ) -> Timer:
        """Call `callback` in the clock at that moment of true time; None is never, until it is moved."""
        node = node or self.world
        timer = Timer(self._agenda, node, self.roster.chain(node).next_key(label), callback)
        self._agenda.schedule(timer, when_ns)
        return timer

    async def refuse(self) -> None:
        """What every port does once the world is frozen. Raises `Cancelled` or `PowerCut`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        raise PowerCut

    def note(self, kind: str, node: Node, label: str, **fields: Any) -> None:
        """Keep a trace entry until the current task's next gate.

        Tasks that woke together run in an order that isn't reproducible, so what they do before their
        gates mustn't be written in that order. Raises `PowerCut` once the world is frozen.
        """
        if self.frozen:
            raise PowerCut
        self.roster.chain(node).notes.append((self.now_ns, kind, label, fields))


def _release(gate: Gate, *, cancelled: bool) -> None:
    """Let the gate's task go on, with a cancellation if one is to be delivered."""
    task = gate.chain.owner
    assert task is not None
    gate.chain.parked = None
    gate.asleep = False
    if cancelled and gate.raise_cancel is not None:
        trio.lowlevel.reschedule(task, outcome.capture(gate.raise_cancel))
    elif gate.result is None:
        trio.lowlevel.reschedule(task)
    else:
        trio.lowlevel.reschedule(task, gate.result)
