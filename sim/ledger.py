"""What a run did outside its log: requests, tool starts, answers, faults, and the moments they happened."""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen(kw_only=True)
class Moment:
    """A point of a run: the trace entry that comes next, true time, and what each node's clock showed."""

    entry: int
    true_ms: float
    clocks: Mapping[str, int]


@attrs.frozen(kw_only=True)
class Opened:
    """A provider request: its port was called."""

    moment: Moment
    node: str
    session_id: str
    execution_id: str
    message_id: str


@attrs.frozen(kw_only=True)
class ToolStarted:
    """A tool's handler was called."""

    moment: Moment
    node: str
    session_id: str
    execution_id: str
    tool: str
    call_id: str
    message_id: str


@attrs.frozen(kw_only=True)
class FaultApplied:
    """A fault that struck a node, from `moment` on; `until_ms` is None while it lasts."""

    moment: Moment
    name: str
    kind: str
    node: str
    until_ms: float | None = None
    applied: bool = False  #: a store error that hid a commit


@attrs.frozen(kw_only=True)
class InterruptAnswered:
    """An interrupt and its answer; `execution_id` held the claim when it was asked."""

    moment: Moment
    session_id: str
    execution_id: str | None
    answer: str


@attrs.define
class Followed:
    """What a follower saw: (seq, event id) in its order. `listening` if it still was at the end, `cut_off` if
    its reading ended before, though the engine it read from was there."""

    name: str
    node: str
    session_id: str
    after: int
    seen: list[tuple[int, str]] = attrs.field(factory=list)
    listening: bool = False
    cut_off: bool = False


@attrs.define
class Ledger:
    """Filled while a run goes on; read by its expectations and checks."""

    opened: list[Opened] = attrs.field(factory=list)
    tools: list[ToolStarted] = attrs.field(factory=list)
    faults: list[FaultApplied] = attrs.field(factory=list)
    interrupts: list[InterruptAnswered] = attrs.field(factory=list)
    answers: dict[str, str] = attrs.field(factory=dict)
    fired: dict[str, Moment] = attrs.field(factory=dict)
    windows: dict[str, dict[str, None]] = attrs.field(factory=dict)  #: event type to the windows seen
    breaches: list[tuple[Moment, str, str, str]] = attrs.field(factory=list)
    """What broke on the way: (moment, session id, node, sentence)."""
    crashes: list[str] = attrs.field(factory=list)  #: exceptions that left a node's engine, as sentences
    followed: list[Followed] = attrs.field(factory=list)
