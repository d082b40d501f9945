"""What a step is told, what it remembers, and what it decides: frozen data without behaviour."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from engine import events as ev
from engine.buffer import Buffer
from engine.facts import FragmentKey, StepFacts
from engine.ports import ProviderEvent
from engine.records import JSON, Usage
from engine.retry import Failure

# --- what a step is told, besides provider events ----------------------------------------------------


@attrs.frozen(kw_only=True)
class StreamEnded:
    """The provider's body ended without an error."""


@attrs.frozen(kw_only=True)
class StreamFailed:
    """The request failed outside its stream of events: raised, or was silent for too long."""

    kind: str
    message: str


@attrs.frozen(kw_only=True)
class ToolDone:
    """A local tool's outcome; `event` is the call's terminal."""

    event: ev.ToolSucceeded | ev.ToolFailed


@attrs.frozen(kw_only=True)
class Progress:
    """A JSON value a running tool wants to be shown now."""

    call_id: str
    value: JSON


StepInput = ProviderEvent | StreamEnded | StreamFailed | ToolDone | Progress

# --- state and decision ------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class StepState:
    """The publisher's memory of its open step. `facts` is what the log says; the rest is not logged yet."""

    facts: StepFacts
    tools: frozenset[str]  #: names of local tools the model may call
    tools_allowed: bool = True
    open_ids: Mapping[tuple[str, str], FragmentKey] = attrs.field(factory=dict)
    texts: Mapping[FragmentKey, Buffer] = attrs.field(factory=dict)  #: of open fragments only
    input_names: Mapping[str, str] = attrs.field(factory=dict)  #: call id to the name its input began with
    refused: frozenset[str] = frozenset()  #: hosted calls failed here, whose result may still come
    usage: Usage | None = None
    finish: str | None = None
    failed: Failure | None = None


@attrs.frozen(kw_only=True)
class Ended:
    """The step is over and good; `calls` says whether tool results are owed to the model."""

    finish: str
    usage: Usage
    calls: bool


@attrs.frozen(kw_only=True)
class Failed:
    """The step is over and failed; `visible` says whether it produced something before."""

    failure: Failure
    usage: Usage | None
    visible: bool


Closing = Ended | Failed


@attrs.frozen(kw_only=True)
class Decision:
    """What to commit, to broadcast and to start, and the state that holds once it is committed."""

    state: StepState
    durable: tuple[ev.Event, ...] = ()
    live: tuple[ev.Event, ...] = ()
    start: tuple[ev.ToolCalled, ...] = ()
    closing: Closing | None = None
