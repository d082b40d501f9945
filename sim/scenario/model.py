"""What a scenario file says, as frozen classes: they are the schema of the format.

`docs/scenarios.md` explains every key. A key is a field's name (`as_` is `as`); `line` is where the table
begins in its file, for reports. Units come last: `_ms` milliseconds, `_s` seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import attrs

from engine.limits import EngineConfig
from engine.providers.script import says
from engine.records import JSON
from engine.shape import HIDDEN, Bound
from sim.scenario.disk import Disk, FailingOperation, Inside, OnDisk, Unsynced
from sim.scenario.expect import Expect, ExpectConfigRefused
from sim.scenario.values import (
    AtLeastOne,
    Count,
    Delivery,
    EventType,
    Line,
    Mangling,
    Millis,
    MonotonicPpm,
    Name,
    NodeOrAll,
    Replies,
    Seconds,
    StoreErrorName,
    ToolAsks,
    Unfit,
    Window,
    Words,
)

NODES_MAX = 8


# --- who is there ------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ClockStep:
    """At `at_s` of true time the wall clock jumps."""

    at_s: Seconds
    by_ms: int


@attrs.frozen(kw_only=True)
class NodeClock:
    """How wrong a node's clocks are; the default is right."""

    offset_ms: int = 0
    drift_ppm: int = 0
    monotonic_ppm: MonotonicPpm = 0
    steps: tuple[ClockStep, ...] = ()
    boot_offset_ms: int = 0
    boot_for_s: Seconds = 0.0


@attrs.frozen(kw_only=True)
class Node:
    """One engine in one process."""

    name: Name
    owner: Name | None = None
    sweep: bool = True
    starts_at_s: Seconds = 0.0
    clock: NodeClock = NodeClock()
    line: Line = 0


@attrs.frozen(kw_only=True)
class Mangle:
    """What becomes of the `event`-th event of the session's `request`-th request on its way here."""

    request: AtLeastOne = 1
    event: AtLeastOne
    does: Mangling


@attrs.frozen(kw_only=True)
class Session:
    """A session that exists from the start, and what its model answers, request by request."""

    name: Name
    model: str = "scripted"
    system: str = ""
    agent: str = "main"
    title: str = ""
    location: Name | None = None
    replies: Replies = (says("Done."),)
    mangle: tuple[Mangle, ...] = ()
    line: Line = 0


@attrs.frozen(kw_only=True)
class Tool:
    """A tool that every node has. It returns `output`, or the next of `results`, or something `unfit` to be
    stored; or it raises, `fails` for the model to see and `crashes` as a bug of the tool. Before that it
    `asks` its own engine for something, about its own session or another one."""

    name: Name
    output: JSON = None
    results: tuple[JSON, ...] | None = None
    unfit: Unfit | None = None
    fails: str | None = None
    crashes: str | None = None
    repeat: AtLeastOne = 1
    takes_ms: Millis = 0
    ignores_cancel: bool = False
    asks: ToolAsks | None = None
    session: Name | None = None
    line: Line = 0

    def value(self, start: int) -> JSON:
        """What the tool returns at its `start`-th start, from 1: the last of `results` is repeated, and an
        `output` that is text stands there `repeat` times over."""
        if self.results:
            return self.results[min(start, len(self.results)) - 1]
        return self.output * self.repeat if isinstance(self.output, str) else self.output


@attrs.frozen(kw_only=True)
class Location:
    """A location that every node knows. Opening it takes `takes_ms`; with `fails` it raises that message."""

    name: Name
    fails: str | None = None
    takes_ms: Millis = 0
    line: Line = 0


@attrs.frozen(kw_only=True)
class Listener:
    """How a node's listener misbehaves at the `nth` event of a type; 0 is every time."""

    node: Name
    event: EventType
    nth: Count = 1
    does: Literal["raises", "hangs", "sleeps", "cancelled"]
    for_ms: Millis | None = None
    line: Line = 0


@attrs.frozen(kw_only=True)
class Follower:
    """Somebody who follows a session's log through a node, from the event behind `after_seq` on."""

    as_: Name | None = None
    node: Name
    session: Name
    after_seq: Annotated[int, Bound(-1)] = -1
    at_s: Seconds = 0.0
    line: Line = 0


# --- triggers ----------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class OnEvent:
    """When the `nth` such event is in that window of its commit."""

    leads: ClassVar[str] = "event"

    event: EventType
    window: Window = "after_commit"
    nth: AtLeastOne = 1
    session: Name | None = None
    node: Name | None = None


@attrs.frozen(kw_only=True)
class OnGate:
    """At the `gate`-th gate of `node`, or of the whole run."""

    leads: ClassVar[str] = "gate"

    gate: AtLeastOne
    node: Name | None = None


@attrs.frozen(kw_only=True)
class After:
    """`delay_s` after the action or fault of that name has ended."""

    leads: ClassVar[str] = "after"

    after: Name
    delay_s: Seconds = 0.0


Trigger = OnEvent | OnGate | OnDisk | After


# --- what happens ------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Action:
    """What a client does at a node. Exactly one of `at_s` and `when` is given."""

    as_: Name | None = None
    do: Literal[
        "send",
        "interrupt",
        "resume",
        "wake",
        "cancel_input",
        "delete",
        "release",
        "discard",
        "poison",
        "shutdown",
        "start",
    ]
    node: Name
    session: Name | None = None
    text: str | None = None
    delivery: Delivery | None = None
    input: Name | None = None
    owner: Name | None = None
    at_s: Seconds | None = None
    when: Trigger | None = None
    line: Line = 0


@attrs.frozen(kw_only=True)
class Fault:
    """What befalls a node, or all of them, or the machine they run on, which then is no `node`. Exactly one
    of `at_s` and `when` is given."""

    as_: Name | None = None
    kind: Literal[
        "cancel",
        "power_cut",
        "stall",
        "slow",
        "take_over",
        "suspend",
        "clock_step",
        "clock_slew",
        "monotonic_rate",
        "store_error",
        "power_loss",
        "disk_error",
        "disk_full",
        "sync_lies",
        "slow_disk",
    ]
    node: NodeOrAll = ""
    session: Name | None = None
    for_s: Seconds | None = None
    by_ms: int | None = None
    ppm: MonotonicPpm | None = None
    monotonic_stops: bool | None = None
    gate_ms: AtLeastOne | None = None
    owner: Name | None = None
    times: AtLeastOne | None = None
    again_after_s: Seconds | None = None
    error: StoreErrorName | None = None
    batches: AtLeastOne | None = None
    applied: bool | None = None
    inside: Inside | None = None
    statement: AtLeastOne | None = None
    unsynced: Unsynced | None = None
    operation: FailingOperation | None = None
    operations: AtLeastOne | None = None
    commit_ms: AtLeastOne | None = None
    at_s: Seconds | None = None
    when: Trigger | None = None
    line: Line = 0


@attrs.frozen(kw_only=True)
class TapeSpec:
    """The draws of a recorded run, stream by stream; where a list ends, zeros follow."""

    schedule: tuple[Count, ...] = ()
    faults: tuple[Count, ...] = ()
    clocks: tuple[Count, ...] = ()
    provider: tuple[Count, ...] = ()
    store: tuple[Count, ...] = ()


# --- the scenario ------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Scenario:
    """One file: who is there, what happens, and what must hold then."""

    proves: Words
    name: Name
    config: Mapping[str, JSON] = attrs.field(factory=dict)
    disk: Disk | None = None
    nodes: tuple[Node, ...]
    sessions: tuple[Session, ...] = ()
    tools: tuple[Tool, ...] = ()
    locations: tuple[Location, ...] = ()
    listeners: tuple[Listener, ...] = ()
    followers: tuple[Follower, ...] = ()
    actions: tuple[Action, ...] = ()
    faults: tuple[Fault, ...] = ()
    expect: tuple[Expect, ...] = ()
    tape: TapeSpec | None = None
    file: Annotated[str, HIDDEN] = attrs.field(default="", eq=False)

    def engine_config(self) -> EngineConfig:
        """The engine's configuration. Raises `ConfigError` where the file expects just that."""
        return EngineConfig(**self.config)

    @property
    def config_refused(self) -> ExpectConfigRefused | None:
        """The expectation that no engine opens, if the file has it."""
        return next((one for one in self.expect if isinstance(one, ExpectConfigRefused)), None)
