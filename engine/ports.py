"""What the engine asks of the world: time, ids, a store, providers, tools, listeners.

The real adapters live in `engine.system`, `engine.store` and `engine.providers`; the simulator has doubles
of the same names. Every asynchronous port call is a checkpoint, also when it has nothing to wait for.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeVar

import attrs

from engine.events import Stored
from engine.records import (
    JSON,
    Claim,
    EventRow,
    Fence,
    InputRow,
    RecoveryRow,
    Request,
    SessionRow,
)

T = TypeVar("T")

# --- time, ids, chance -------------------------------------------------------------------------------


class Scope(Protocol):
    """A cancel scope whose deadline is a reading of its clock's `monotonic()`, in seconds."""

    @property
    def cancel_called(self) -> bool:
        """True once `cancel` was called or the deadline passed."""

    @property
    def cancelled_caught(self) -> bool:
        """True if a cancellation of this scope ended its block."""

    def cancel(self) -> None:
        """Cancel what runs inside."""

    def extend(self, deadline: float) -> None:
        """Move the deadline later; an earlier one is ignored."""

    def move(self, deadline: float) -> None:
        """Move the deadline, later or earlier; `inf` is none."""


class Clock(Protocol):
    """One node's clocks. The wall clock may be wrong and may jump; leases and `created` use it."""

    def now_ms(self) -> int:
        """The wall clock, in milliseconds."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Wait on the monotonic clock; a checkpoint even for 0."""

    async def checkpoint(self) -> None:
        """Let others run; every started or woken task passes one before it touches anything shared."""

    def scope(
        self, deadline: float = math.inf, *, shield: bool = False
    ) -> AbstractContextManager[Scope, bool]:
        """A cancel scope on this clock. A shield must be bounded: `deadline` is then finite."""


class Ids(Protocol):
    """Where fresh identifiers come from."""

    def new(self, prefix: str) -> str:
        """A fresh id such as `msg_…`; never the same twice, on any node."""


class Chance(Protocol):
    """Where randomness comes from (jitter)."""

    def fraction(self) -> float:
        """A number from 0 up to, and without, 1."""


@attrs.frozen(kw_only=True)
class System:
    """The node's surroundings, handed to every part that needs them."""

    clock: Clock
    ids: Ids
    chance: Chance


# --- the store ---------------------------------------------------------------------------------------


class Reader(Protocol):
    """Named reads of one snapshot. One method is one SQL statement; limits are row counts."""

    def session(self, session_id: str) -> SessionRow | None: ...
    def sessions(self, after: str, limit: int) -> list[SessionRow]:
        """Sessions by id, those greater than `after`; tombstones included."""

    def latest_seq(self, session_id: str) -> int:
        """The seq of the session's latest event, -1 if it has none."""

    def events(self, session_id: str, after: int, limit: int) -> list[EventRow]:
        """Events with seq greater than `after`, in order."""

    def latest_event(self, session_id: str, type: str) -> EventRow | None:
        """The session's latest event of one type."""

    def event_by_id(self, event_id: str) -> EventRow | None: ...
    def claim(self, session_id: str) -> Claim | None: ...
    def claims(self, after: str, limit: int) -> list[Claim]:
        """Claims by session id, those greater than `after`."""

    def claims_due(self, now_ms: int, limit: int) -> list[Claim]:
        """Claims whose `expires_at` is at or before `now_ms`, longest expired first."""

    def generation(self, session_id: str) -> int:
        """The latest generation of the session's fence, 0 if it was never claimed."""

    def input(self, input_id: str) -> InputRow | None: ...
    def inputs(self, session_id: str) -> list[InputRow]:
        """Every input of the session in the order of admission."""

    def pending_inputs(self, session_id: str, delivery: str, limit: int) -> list[InputRow]:
        """Pending, unparked inputs of one delivery, in the order of admission."""

    def pending_count(self, session_id: str) -> int:
        """Pending inputs, parked ones included."""

    def parked_count(self, session_id: str) -> int: ...
    def sessions_waiting(self, limit: int) -> list[str]:
        """Sessions with pending, unparked input and no claim, quarantined and deleted ones left out."""

    def released(self, limit: int) -> list[str]:
        """Sessions that were released from quarantine and aren't claimed yet."""

    def recovery(self, session_id: str) -> RecoveryRow | None: ...
    def quarantined(self, limit: int) -> list[RecoveryRow]:
        """Recovery rows that hold an error."""


class Transaction(Reader, Protocol):
    """Named writes of one immediate transaction. What to write is decided by the caller, never here."""

    @property
    def now_ms(self) -> int:
        """The writer's wall clock, read once per work after the lock is held."""

    def append_event(self, row: EventRow) -> None:
        """Insert one event row and move the session's latest seq to it."""

    def tell(self, stored: Stored) -> None:
        """Note a decoded event to be handed to the observers once this work is committed."""

    def put_session(self, row: SessionRow) -> None: ...
    def put_input(self, row: InputRow) -> None: ...
    def park_inputs(self, session_id: str, through: int) -> None:
        """Park the pending inputs admitted at or before `through`."""

    def unpark_inputs(self, session_id: str, through: int) -> None: ...
    def put_claim(self, claim: Claim) -> None: ...
    def delete_claim(self, session_id: str) -> None: ...
    def put_generation(self, session_id: str, generation: int) -> None: ...
    def put_recovery(self, row: RecoveryRow) -> None: ...
    def delete_recovery(self, session_id: str) -> None: ...
    def erase_session(self, session_id: str) -> None:
        """Physically delete every row of the session but its `session_fence`."""


class StoreObserver(Protocol):
    """Told by the store, on the Trio thread, before any waiting writer is rescheduled."""

    def committed(self, stored: Sequence[Stored]) -> None:
        """One work was committed and its `after_commit` has run; called in commit order."""

    def changed_elsewhere(self) -> None:
        """Another process committed something: whoever follows the log reads again."""


@attrs.frozen(kw_only=True)
class StoreHealth:
    """How the store is. `error` is the latest failure, None once a write succeeded after it."""

    writable: bool
    error: str | None
    queued: int


class Store(Protocol):
    """Two verbs over a durable database.

    A `work` is a plain function without effects outside its transaction: it may run more than once.
    """

    async def write(
        self,
        work: Callable[[Transaction], T],
        after_commit: Callable[[T], None] | None = None,
        *,
        label: str = "",
    ) -> T:
        """Run `work` in one immediate transaction, commit, run `after_commit` with its value, return it.

        Cancelled before the writer took it, it doesn't happen. From then on it waits for the outcome,
        whatever is cancelled: a value, or an error with nothing applied. Raises what `work` raises, a
        `StoreError`, `CommitOutcomeUnknown`, or `AfterCommitFailed` (applied).
        """

    async def read(self, work: Callable[[Reader], T]) -> T:
        """Run `work` on a snapshot. It returns materialised values. Raises a `StoreError`."""

    def observe(self, observer: StoreObserver) -> None:
        """Tell `observer` of every commit from now on."""

    def health(self) -> StoreHealth: ...


# --- providers ---------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ProviderEvent:
    """The base of what a provider says during one request. Fragments are named by the provider's own `id`."""


@attrs.frozen(kw_only=True)
class TextStart(ProviderEvent):
    """A fragment of text begins."""

    id: str = "text"


@attrs.frozen(kw_only=True)
class TextChunk(ProviderEvent):
    """More of a fragment of text."""

    text: str
    id: str = "text"


@attrs.frozen(kw_only=True)
class TextEnd(ProviderEvent):
    """A fragment of text is whole."""

    id: str = "text"


@attrs.frozen(kw_only=True)
class ReasoningStart(ProviderEvent):
    """A fragment of reasoning begins."""

    id: str = "reasoning"


@attrs.frozen(kw_only=True)
class ReasoningChunk(ProviderEvent):
    """More of a fragment of reasoning."""

    text: str
    id: str = "reasoning"


@attrs.frozen(kw_only=True)
class ReasoningEnd(ProviderEvent):
    """A fragment of reasoning is whole."""

    id: str = "reasoning"


@attrs.frozen(kw_only=True)
class ToolInputStart(ProviderEvent):
    """The arguments of a call begin to arrive."""

    call_id: str
    name: str


@attrs.frozen(kw_only=True)
class ToolInputChunk(ProviderEvent):
    """More of a call's arguments, as raw JSON text."""

    call_id: str
    text: str


@attrs.frozen(kw_only=True)
class ToolInputEnd(ProviderEvent):
    """A call's arguments are whole; the call itself follows."""

    call_id: str


@attrs.frozen(kw_only=True)
class ToolCall(ProviderEvent):
    """A whole call; `input` is the raw JSON text of the arguments, as the provider sent it."""

    call_id: str
    name: str
    input: str
    hosted: bool = False


@attrs.frozen(kw_only=True)
class ToolResult(ProviderEvent):
    """The result of a hosted call; `error` is None if it succeeded."""

    call_id: str
    output: JSON = None
    error: str | None = None


@attrs.frozen(kw_only=True)
class Finish(ProviderEvent):
    """The provider's answer is complete; `reason` is `stop`, `tool_calls`, `length`, `content_filter` …"""

    reason: str = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0


@attrs.frozen(kw_only=True)
class ProviderError(ProviderEvent):
    """An error the provider reports in its stream.

    `kind`: `rate_limit`, `overloaded`, `internal`, `transport`, `incomplete`, `unknown` may be retried;
    `auth`, `quota`, `content_policy`, `invalid_request`, `unsupported` are not. `retry_after_s` in seconds.
    """

    kind: str
    message: str = ""
    retry_after_s: float | None = None


class Provider(Protocol):
    """A model behind a stream of events."""

    def open(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[ProviderEvent]]:
        """Open one request. Leaving the block closes it; cancelling the block cancels the request.

        The iterator ends when the body is complete. A raised exception is a `transport` failure.
        """


# --- tools -------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ToolContext:
    """What a tool's handler knows of its call. The fence makes effects downstream idempotent."""

    fence: Fence
    assistant_message_id: str
    call_id: str
    location: str | None
    progress: Callable[[JSON], None]
    """Broadcast a JSON value to live subscribers; never stored."""


ToolHandler = Callable[[ToolContext, dict[str, Any]], Awaitable[JSON]]


@attrs.frozen(kw_only=True)
class Tool:
    """A tool the model may call. `schema` is the JSON Schema of the input object.

    The handler returns a JSON value, or raises `ToolError` for the model to see.
    """

    name: str
    description: str
    schema: Mapping[str, JSON]
    handler: ToolHandler


# --- listeners ---------------------------------------------------------------------------------------

Listener = Callable[[Stored], Awaitable[None]]
"""Told of each newly committed event, one after another, by the publisher and within `listener_ms_max`."""
