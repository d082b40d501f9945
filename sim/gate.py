"""What the kernel schedules: nodes, chains of tasks, gates and timers. They hold state and decide nothing."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import outcome
import trio

if TYPE_CHECKING:
    from sim.agenda import Agenda

Key = tuple[str, int, str, str, int]
"""(node, incarnation, task name, label, nth): the same in every run of a tape."""


class SimulationError(Exception):
    """The run can't go on; the fault of the simulated code or of the world around it, as the text says."""


class Deadlock(SimulationError):
    """Nothing can run and no timer is left. The text lists who waits for what."""


class RunTooLong(SimulationError):
    """A bound on gates, on virtual time, or on Trio's turns without a gate was exceeded."""


class DuplicateTask(SimulationError):
    """Two live tasks of one node share a name, so their keys aren't unique. Give each task its own name."""


class RealWait(SimulationError):
    """A task waits for a socket or a thread. Inside a run there are only the simulator's doubles."""


class PowerCut(BaseException):
    """Raised by every port once the world is frozen, so that tasks unwind without any effect.

    A BaseException, since simulated code must not be able to handle the end of its own world.
    """


class NodeState(enum.Enum):
    """Whether a node's tasks may be chosen."""

    RUNNING = "running"
    PAUSED = "paused"  #: none of its gates and timers is chosen until `resume`
    DEAD = "dead"  #: none of its code runs again


@attrs.define(eq=False)
class Node:
    """One incarnation of a node. `key` (`a.1`) is what the trace calls it."""

    name: str
    incarnation: int
    state: NodeState = NodeState.RUNNING
    key: str = attrs.field(init=False)
    shields: dict[trio.CancelScope, None] = attrs.field(init=False, factory=dict)
    _chains: dict[str, Chain] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.key = f"{self.name}.{self.incarnation}"

    def __str__(self) -> str:
        return self.key

    def chain(self, task_name: str) -> Chain:
        """The chain of that name, made when first asked for."""
        chain = self._chains.get(task_name)
        if chain is None:
            chain = self._chains[task_name] = Chain(self, task_name)
        return chain

    def chains(self) -> list[Chain]:
        """All chains, sorted by name."""
        return [chain for _, chain in sorted(self._chains.items())]


@attrs.define(eq=False)
class Chain:
    """What tasks of one name did one after another on a node: their counters, notes and parked gate."""

    node: Node
    task_name: str
    owner: trio.lowlevel.Task | None = None
    parked: Gate | None = None
    notes: list[tuple[int, str, str, dict[str, Any]]] = attrs.field(factory=list)
    _counters: dict[str, int] = attrs.field(factory=dict)

    def count(self, label: str) -> int:
        """How many times this was asked for `label`, this time included."""
        nth = self._counters[label] = self._counters.get(label, 0) + 1
        return nth

    def next_key(self, label: str) -> Key:
        return (self.node.name, self.node.incarnation, self.task_name, label, self.count(label))


@attrs.define(eq=False)
class Timer:
    """A callback due at a moment of true time. It runs in the clock, when no task is runnable.

    It is asleep until then; afterwards it waits to be chosen, like a gate.
    """

    agenda: Agenda
    node: Node
    key: Key
    callback: Callable[[], None]
    when_ns: int | None = None
    asleep: bool = attrs.field(init=False, default=True)
    held: bool = attrs.field(init=False, default=False)

    def cancel(self) -> None:
        """Never fire; harmless afterwards, too."""
        if self.asleep:
            self.agenda.schedule(self, None)
        else:
            self.agenda.retract(self)

    def move(self, when_ns: int | None) -> None:
        """Fire then instead, if it hasn't fired; None is never."""
        if not self.asleep:
            self.agenda.retract(self)
        self.agenda.schedule(self, when_ns)


@attrs.define(eq=False)
class Gate:
    """A task parked in the middle of a port call, until it is chosen.

    An asleep gate can't be chosen before `wake`, its moment `when_ns`, or a cancellation it may deliver.
    """

    agenda: Agenda
    chain: Chain
    key: Key
    info: Mapping[str, Any]
    deliver_cancel: bool
    asleep: bool
    when_ns: int | None = None
    index: int = -1  #: the n-th gate of the run, from 0; known once `on_park` is told
    held: bool = False
    raise_cancel: Callable[[], Any] | None = None
    result: outcome.Outcome[Any] | None = None  #: what the wait gives; None is nothing

    @property
    def node(self) -> Node:
        return self.chain.node

    @property
    def incarnation(self) -> int:
        return self.chain.node.incarnation

    @property
    def task(self) -> str:
        return self.chain.task_name

    @property
    def label(self) -> str:
        return self.key[3]

    @property
    def nth(self) -> int:
        return self.key[4]

    def __str__(self) -> str:
        return f"{self.node.key}/{self.task} {self.label}#{self.nth}"

    def hold(self) -> None:
        """Not to be chosen while anything else can be; it is chosen before time moves."""
        self.agenda.hold(self)

    def fail_with(self, error: BaseException) -> None:
        """Raise `error` in the task when the gate is chosen."""
        self.result = outcome.Error(error)

    def wake(self, value: object = None, *, error: BaseException | None = None) -> None:
        """Make an asleep gate choosable; its wait then returns `value` or raises `error`."""
        self.result = outcome.Value(value) if error is None else outcome.Error(error)
        self.agenda.arrive(self)

    def refuse_cancel(self) -> None:
        """Deliver no cancellation from now on; if one made this gate choosable, it is asleep again.

        For gates that were opened asleep and not woken yet.
        """
        self.deliver_cancel = False
        if not self.asleep:
            self.agenda.retract(self)

    def move(self, when_ns: int | None) -> None:
        """Be due then instead, if still asleep; None is never."""
        self.agenda.schedule(self, when_ns)

    async def wait(self) -> Any:
        """Park the current task here. Nothing may be awaited between opening a gate and this."""
        return await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
        # Called in hash order: it only notes, and the cancellation is delivered when the gate is drawn.
        self.raise_cancel = raise_cancel
        if self.deliver_cancel and self.asleep:
            self.agenda.arrive(self)
        return trio.lowlevel.Abort.FAILED
