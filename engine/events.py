"""The whole event vocabulary: frozen classes in one registry, keyed by (type, version).

Durable events are stored in the log; live ones are only broadcast to those who listen now. Fragments are
live, and the boundary event carries the whole value. A field that is added later gets a default, so that
old logs decode; any other change is a new version of the class beside the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, TypeVar, dataclass_transform

import attrs

from engine.records import JSON, ErrorInfo, Usage

E = TypeVar("E", bound="type[Event]")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def _base(cls: E) -> E:
    """An abstract event class, frozen like the others and not in the registry."""
    return attrs.frozen(kw_only=True)(cls)


@_base
class Event:
    """The base of all events. `type`, `version` and `durable` belong to the class, not to the data."""

    type: ClassVar[str] = ""
    version: ClassVar[int] = 0
    durable: ClassVar[bool] = True

    session_id: str


REGISTRY: dict[tuple[str, int], type[Event]] = {}


@dataclass_transform(kw_only_default=True, frozen_default=True)
def event(type: str, *, version: int = 1, durable: bool = True) -> Callable[[E], E]:
    """Class decorator that freezes an event class and registers it under (`type`, `version`)."""

    def register(cls: E) -> E:
        frozen = attrs.frozen(kw_only=True)(cls)
        frozen.type, frozen.version, frozen.durable = type, version, durable
        assert (type, version) not in REGISTRY, f"{type} version {version} is registered twice"
        REGISTRY[type, version] = frozen
        return frozen

    return register


# --- session -----------------------------------------------------------------------------------------


@event("session.created")
class SessionCreated(Event):
    title: str
    location: str | None
    model: str
    agent: str
    system: str


@event("session.renamed")
class SessionRenamed(Event):
    title: str


@event("session.deleted")
class SessionDeletedEvent(Event):
    """A tombstone: the session accepts nothing more."""


# --- inbox -------------------------------------------------------------------------------------------

Delivery = Literal["steer", "queue"]


@event("input.admitted")
class InputAdmitted(Event):
    input_id: str
    kind: str
    delivery: Delivery
    payload: JSON


@event("input.delivery_changed")
class InputDeliveryChanged(Event):
    input_id: str
    delivery: Delivery


@event("input.cancelled")
class InputCancelled(Event):
    input_id: str


@event("input.promoted")
class InputPromoted(Event):
    input_id: str


@event("input.parked")
class InputParked(Event):
    """An interrupt found no claim: pending inputs admitted up to `through` wait for a person."""

    through: int


@event("input.resumed")
class InputResumed(Event):
    through: int


# --- execution ---------------------------------------------------------------------------------------


@event("execution.started")
class ExecutionStarted(Event):
    generation: int
    owner_id: str
    previous_execution_id: str | None = None


@event("execution.succeeded")
class ExecutionSucceeded(Event):
    pass


@event("execution.failed")
class ExecutionFailed(Event):
    error: ErrorInfo
    parked_through: int | None = None


@event("execution.interrupted")
class ExecutionInterrupted(Event):
    parked_through: int


@event("execution.handed_over")
class ExecutionHandedOver(Event):
    """Shutdown: the turn goes on elsewhere."""


EXECUTION_TERMINALS = (ExecutionSucceeded, ExecutionFailed, ExecutionInterrupted, ExecutionHandedOver)


# --- step --------------------------------------------------------------------------------------------


@_base
class StepEvent(Event):
    """The base of all that belongs to one step, named by its `assistant_message_id`."""

    assistant_message_id: str


@event("step.started")
class StepStarted(StepEvent):
    agent: str
    model: str
    attempt: int


@event("step.streamed")
class StepStreamed(StepEvent):
    """The provider's body is complete; tools may still run."""


@event("step.ended")
class StepEnded(StepEvent):
    finish: str
    usage: Usage


@event("step.failed")
class StepFailed(StepEvent):
    error: ErrorInfo
    usage: Usage | None = None


Cause = Literal["user", "shutdown", "unknown"]


@event("step.interrupted")
class StepInterrupted(StepEvent):
    cause: Cause
    error: ErrorInfo


STEP_TERMINALS = (StepEnded, StepFailed, StepInterrupted)


# --- text and reasoning ------------------------------------------------------------------------------


@event("text.started")
class TextStarted(StepEvent):
    ordinal: int


@event("text.delta", durable=False)
class TextDelta(StepEvent):
    ordinal: int
    text: str


@event("text.ended")
class TextEnded(StepEvent):
    ordinal: int
    text: str
    truncated: bool = False


@event("reasoning.started")
class ReasoningStarted(StepEvent):
    ordinal: int


@event("reasoning.delta", durable=False)
class ReasoningDelta(StepEvent):
    ordinal: int
    text: str


@event("reasoning.ended")
class ReasoningEnded(StepEvent):
    ordinal: int
    text: str
    truncated: bool = False


# --- tools -------------------------------------------------------------------------------------------


@event("tool.input.started")
class ToolInputStarted(StepEvent):
    call_id: str
    name: str


@event("tool.input.delta", durable=False)
class ToolInputDelta(StepEvent):
    call_id: str
    text: str


@event("tool.input.ended")
class ToolInputEnded(StepEvent):
    call_id: str
    text: str
    truncated: bool = False


@event("tool.called")
class ToolCalled(StepEvent):
    call_id: str
    name: str
    input: JSON
    hosted: bool = False


@event("tool.progress", durable=False)
class ToolProgress(StepEvent):
    call_id: str
    value: JSON


@event("tool.succeeded")
class ToolSucceeded(StepEvent):
    call_id: str
    output: JSON
    truncated: bool = False


Outcome = Literal["not_run", "failed", "unknown"]


@event("tool.failed")
class ToolFailed(StepEvent):
    call_id: str
    error: ErrorInfo
    outcome: Outcome


# --- retry and notes ---------------------------------------------------------------------------------


@event("retry.scheduled")
class RetryScheduled(Event):
    attempt: int
    at: int
    error: ErrorInfo


@event("synthetic")
class Synthetic(Event):
    """A note that Fencepost adds to the conversation for the model to read."""

    text: str
    description: str


@attrs.frozen(kw_only=True)
class Stored:
    """A committed event with its envelope; `event` is decoded."""

    event_id: str
    seq: int
    created: int
    execution_id: str | None
    event: Event
    metadata: JSON = None
    location: str | None = None

    @property
    def type(self) -> str:
        """The event's type, such as `step.started`."""
        return self.event.type
