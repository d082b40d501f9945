"""What a scenario file may expect: one frozen class for each leading key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import attrs

from engine.records import JSON
from engine.shape import REST
from sim.scenario.values import (
    Answer,
    Count,
    ErrorName,
    EventType,
    Line,
    Name,
    PhaseName,
    Status,
    Words,
)


@attrs.frozen(kw_only=True)
class ExpectClaim:
    """What the claim row of a session says, just before `at` fired or at the first change `after` it."""

    leads: ClassVar[str] = "claim"

    claim: Name
    at: Name | None = None
    after: Name | None = None
    exists: bool = True
    phase: PhaseName | None = None
    seq_of: EventType | None = None
    expires_at: int | None = None
    message: bool | None = None
    line: Line = 0


@attrs.frozen(kw_only=True)
class ExpectEvents:
    """How many events of a type the final log holds, with these values in their data."""

    leads: ClassVar[str] = "events"

    events: Name
    type: EventType
    count: Count | None = None
    at_least: Count | None = None
    at_most: Count | None = None
    same_step_as: EventType | None = None
    having: Annotated[Mapping[str, JSON], REST] = attrs.field(factory=dict)
    line: Line = 0


@attrs.frozen(kw_only=True)
class ExpectOrder:
    """The types of the final durable log: all of it, its end, or a subsequence."""

    leads: ClassVar[str] = "order"

    order: Name
    types: tuple[EventType, ...] | None = None
    ends_with: tuple[EventType, ...] | None = None
    contains: tuple[EventType, ...] | None = None
    line: Line = 0


@attrs.frozen(kw_only=True)
class ExpectAnswer:
    """What an action returned, or the class of the error it raised."""

    leads: ClassVar[str] = "answer"

    answer: Name
    is_: Answer | None = None
    one_of: tuple[Answer, ...] | None = None
    line: Line = 0

    @property
    def allowed(self) -> tuple[str, ...]:
        """The answers that meet the expectation."""
        return self.one_of or () if self.is_ is None else (self.is_,)


@attrs.frozen(kw_only=True)
class ExpectRequests:
    """How many provider requests were opened for a session."""

    leads: ClassVar[str] = "requests"

    requests: Name
    count: Count | None = None
    at_least: Count | None = None
    at_most: Count | None = None
    line: Line = 0


@attrs.frozen(kw_only=True)
class ExpectTool:
    """How often a tool's handler was started."""

    leads: ClassVar[str] = "tool"

    tool: Name
    starts: Count
    line: Line = 0


@attrs.frozen(kw_only=True)
class ExpectRefused:
    """How many writes were refused with an error class; once or more, unless it says otherwise."""

    leads: ClassVar[str] = "refused"

    refused: ErrorName
    node: Name | None = None
    count: Count | None = None
    at_least: Count | None = None
    at_most: Count | None = None
    line: Line = 0


@attrs.frozen(kw_only=True)
class ExpectConfigRefused:
    """That no engine opens with this configuration, and what the `ConfigError` says among other things."""

    leads: ClassVar[str] = "config_refused"

    config_refused: Words
    line: Line = 0


@attrs.frozen(kw_only=True)
class ExpectStatus:
    """How a session is when the run is over."""

    leads: ClassVar[str] = "status"

    status: Name
    is_: Status
    line: Line = 0


@attrs.frozen(kw_only=True)
class ExpectTakeovers:
    """How often a session was taken over."""

    leads: ClassVar[str] = "takeovers"

    takeovers: Name
    count: Count | None = None
    at_least: Count | None = None
    at_most: Count | None = None
    line: Line = 0


Expect = (
    ExpectClaim
    | ExpectEvents
    | ExpectOrder
    | ExpectAnswer
    | ExpectRequests
    | ExpectTool
    | ExpectRefused
    | ExpectConfigRefused
    | ExpectStatus
    | ExpectTakeovers
)
Counted = ExpectEvents | ExpectRequests | ExpectRefused | ExpectTakeovers


def counts(expect: Counted, found: int) -> bool:
    """Whether `found` meets the count of an expectation."""
    if expect.count is not None:
        return found == expect.count
    unsaid = 1 if isinstance(expect, ExpectRefused) and expect.at_most is None else 0
    least = unsaid if expect.at_least is None else expect.at_least
    return least <= found and (expect.at_most is None or found <= expect.at_most)
