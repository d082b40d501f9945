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
    """A session begins: always the event with seq 0."""

    title: str
    location: str | None
    model: str
    agent: str
    system: str


@event("session.renamed")
class SessionRenamed(Event):
    """The session has another title."""

    title: str


@event("session.deleted")
class SessionDeletedEvent(Event):
    """A tombstone: the session accepts nothing more."""


# --- inbox -------------------------------------------------------------------------------------------

Delivery = Literal["steer", "queue"]


@event("input.admitted")
class InputAdmitted(Event):
    """An input was accepted and waits: a `steer` joins the running turn, `queue` waits for its end."""

    input_id: str
    kind: str
    delivery: Delivery
    payload: JSON


@event("input.delivery_changed")
class InputDeliveryChanged(Event):
    """An input that waits is to be delivered in the other way."""

    input_id: str
    delivery: Delivery


@event("input.cancelled")
class InputCancelled(Event):
    """An input that waited will never be promoted."""

    input_id: str


@event("input.promoted")
class InputPromoted(Event):
    """An input became a message of the user; from here on an answer is owed."""

    input_id: str


@event("input.parked")
class InputParked(Event):
    """An interrupt found no claim: pending inputs admitted up to `through` wait for a person."""

    through: int


@event("input.resumed")
class InputResumed(Event):
    """Inputs parked up to `through` wait for a turn again."""

    through: int


# --- execution ---------------------------------------------------------------------------------------


@event("execution.started")
class ExecutionStarted(Event):
    """A claim was acquired or taken over; `generation` grows with each."""

    generation: int
    owner_id: str
    previous_execution_id: str | None = None


@event("execution.succeeded")
class ExecutionSucceeded(Event):
    """Nothing was left to do."""


@event("execution.failed")
class ExecutionFailed(Event):
    """The execution can't go on; inputs admitted up to `parked_through` wait for a person."""

    error: ErrorInfo
    parked_through: int | None = None


@event("execution.interrupted")
class ExecutionInterrupted(Event):
    """A user stopped it; inputs admitted up to `parked_through` wait for a person."""

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
    """One request to the provider begins; `attempt` counts consecutive failed steps, 1 at first."""

    agent: str
    model: str
    attempt: int


@event("step.streamed")
class StepStreamed(StepEvent):
    """The provider's body is complete; tools may still run."""


@event("step.ended")
class StepEnded(StepEvent):
    """The step is over and good; `finish` is the provider's own reason."""

    finish: str
    usage: Usage


@event("step.failed")
class StepFailed(StepEvent):
    """The step is over and failed."""

    error: ErrorInfo
    usage: Usage | None = None


Cause = Literal["user", "shutdown", "unknown"]


@event("step.interrupted")
class StepInterrupted(StepEvent):
    """The step was cut off; its outcome is what its fragments and calls say."""

    cause: Cause
    error: ErrorInfo


STEP_TERMINALS = (StepEnded, StepFailed, StepInterrupted)


# --- text and reasoning ------------------------------------------------------------------------------


@event("text.started")
class TextStarted(StepEvent):
    """Text number `ordinal` of the step begins."""

    ordinal: int


@event("text.delta", durable=False)
class TextDelta(StepEvent):
    """The next piece of an open text."""

    ordinal: int
    text: str


@event("text.ended")
class TextEnded(StepEvent):
    """The whole text; `truncated` if anything of it is missing."""

    ordinal: int
    text: str
    truncated: bool = False


@event("reasoning.started")
class ReasoningStarted(StepEvent):
    """Reasoning number `ordinal` of the step begins; texts and reasonings share one count."""

    ordinal: int


@event("reasoning.delta", durable=False)
class ReasoningDelta(StepEvent):
    """The next piece of an open reasoning."""

    ordinal: int
    text: str


@event("reasoning.ended")
class ReasoningEnded(StepEvent):
    """The whole reasoning; `truncated` if anything of it is missing."""

    ordinal: int
    text: str
    truncated: bool = False


# --- tools -------------------------------------------------------------------------------------------


@event("tool.input.started")
class ToolInputStarted(StepEvent):
    """The model begins to write the arguments of a call."""

    call_id: str
    name: str


@event("tool.input.delta", durable=False)
class ToolInputDelta(StepEvent):
    """The next piece of the arguments, as raw text."""

    call_id: str
    text: str


@event("tool.input.ended")
class ToolInputEnded(StepEvent):
    """The arguments as raw text; they count only once the tool is called."""

    call_id: str
    text: str
    truncated: bool = False


@event("tool.called")
class ToolCalled(StepEvent):
    """A whole call; `hosted` if the provider runs it itself."""

    call_id: str
    name: str
    input: JSON
    hosted: bool = False


@event("tool.progress", durable=False)
class ToolProgress(StepEvent):
    """What a running tool wants to be shown."""

    call_id: str
    value: JSON


@event("tool.succeeded")
class ToolSucceeded(StepEvent):
    """The call has its output; `truncated` if that was cut."""

    call_id: str
    output: JSON
    truncated: bool = False


Outcome = Literal["not_run", "failed", "unknown"]


@event("tool.failed")
class ToolFailed(StepEvent):
    """The call has no output; `outcome` says whether its tool may have taken effect."""

    call_id: str
    error: ErrorInfo
    outcome: Outcome


# --- retry and notes ---------------------------------------------------------------------------------


@event("retry.scheduled")
class RetryScheduled(Event):
    """Attempt number `attempt` begins at `at` (wall ms)."""

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
