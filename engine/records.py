"""The shapes that travel between the parts: rows, fences, requests, answers. Frozen, and without behaviour.

Times named `_ms` or `_at` are milliseconds of a node's wall clock; `seq` counts from 0 within a session.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import attrs

JSON = Any
"""A value that JSON can hold: None, bool, int, float, str, list or dict with str keys."""


class Phase(enum.StrEnum):
    """What a claim says about its session. The rules are in `engine.claims`."""

    READY = "ready"  #: claimed; nothing that was promoted is unanswered
    UNKNOWN = "unknown"  #: a step is open; its outcome is unknown until a terminal commits
    CONTINUE = "continue"  #: no step is open and one is owed
    SAFE = "safe"  #: all is settled and nothing is owed; dropping the claim loses nothing
    CANCELLING = "cancelling"  #: an interrupt was accepted; settlement is due
    CANCELLED = "cancelled"  #: settlement is done; only clearing remains


@attrs.frozen(kw_only=True)
class Fence:
    """Names one execution of one session; every write an execution makes is checked against it."""

    session_id: str
    execution_id: str
    owner_id: str
    generation: int


@attrs.frozen(kw_only=True)
class Claim:
    """A row of `execution_claim`: who executes the session, until when, and how far it got."""

    session_id: str
    execution_id: str
    owner_id: str
    generation: int
    phase: Phase
    assistant_message_id: str | None  #: the open step, None when none is open
    assistant_seq: int  #: seq of the latest `step.started` of the session, -1 if there is none
    expires_at: int
    created_at: int
    version: int  #: grows with every renewal
    interrupt_seq: int | None  #: the session's latest seq when an interrupt was last asked for

    @property
    def fence(self) -> Fence:
        """The fence that names this row's execution."""
        return Fence(
            session_id=self.session_id,
            execution_id=self.execution_id,
            owner_id=self.owner_id,
            generation=self.generation,
        )


@attrs.frozen(kw_only=True)
class SessionRow:
    """A row of the projection `session`."""

    session_id: str
    title: str
    location: str | None
    model: str
    agent: str
    system: str
    created: int
    status: str  #: `idle`, `running`, `failed`, `interrupted` or `handed_over`, by the latest execution event
    deleted: bool


@attrs.frozen(kw_only=True)
class InputRow:
    """A row of the projection `input`."""

    input_id: str
    session_id: str
    kind: str
    delivery: str  #: `steer` or `queue`
    payload: JSON
    admitted_seq: int
    state: str  #: `pending`, `promoted` or `cancelled`
    parked: bool


@attrs.frozen(kw_only=True)
class RecoveryRow:
    """A row of `recovery`: how often a session was taken over, and where the resumed drain goes on."""

    session_id: str
    execution_id: str
    previous_execution_id: str | None
    continuation_message_id: str | None
    wake_pending: bool
    takeovers: int
    recovery_error: str | None


@attrs.frozen(kw_only=True)
class EventRow:
    """A row of the event log as the store keeps it; `data` and `metadata` are canonical JSON bytes."""

    event_id: str
    session_id: str
    seq: int
    type: str
    version: int
    created: int
    execution_id: str | None
    data: bytes
    metadata: bytes | None = None
    location: str | None = None


@attrs.frozen(kw_only=True)
class ErrorInfo:
    """An error as the log and the model see it."""

    type: str
    message: str
    retryable: bool = False
    details: JSON = None


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens of one provider request."""

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0


@attrs.frozen(kw_only=True)
class Message:
    """One message of the conversation as a provider sees it.

    `role` is `user`, `assistant` or `note`; `parts` are dicts with a `kind`: `text{text}`,
    `reasoning{text}`, `tool{call_id, name, input, hosted, output | error, outcome}`.
    """

    message_id: str
    role: str
    parts: tuple[Mapping[str, JSON], ...]


@attrs.frozen(kw_only=True)
class ToolSpec:
    """What a provider is told about a tool; `schema` is the JSON Schema of its input."""

    name: str
    description: str
    schema: Mapping[str, JSON]


@attrs.frozen(kw_only=True)
class Request:
    """One physical request to a provider. `message_id` names the step: one request has one step."""

    session_id: str
    message_id: str
    execution_id: str
    model: str
    agent: str
    system: str
    location: str | None
    attempt: int
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]


class InterruptAnswer(enum.StrEnum):
    """How `interrupt` ended, always within `interrupt_ms_max` and the store's own bounds."""

    NOT_RUNNING = "not_running"  #: there was no claim; pending input is parked
    SETTLED = "settled"  #: the work was stopped, its log is whole, the claim is cleared
    ALREADY_SETTLING = "already_settling"  #: another interrupt is at it
    REQUESTED = "requested"  #: another node holds the claim and hasn't settled within the bound


@attrs.frozen(kw_only=True)
class Admission:
    """What `send` returns: the input as it was admitted first."""

    input_id: str
    session_id: str
    seq: int
    created: bool  #: False if this id had been admitted before
