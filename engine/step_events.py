"""The events that a step and its settlement write, made in one place.

`ids` are the two that every event of a step carries: `session_id` and `assistant_message_id`.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine import events as ev
from engine.buffer import Buffer
from engine.facts import FragmentKey, StepFacts
from engine.records import ErrorInfo


def ids_of(facts: StepFacts) -> dict[str, str]:
    """The ids that every event of the step carries."""
    return {"session_id": facts.session_id, "assistant_message_id": facts.message_id}


def fragment_started(ids: Mapping[str, str], key: FragmentKey, names: Mapping[str, str]) -> ev.Event:
    """The event that opens a fragment; `names` holds the tool's name by call id."""
    kind, which = key
    if isinstance(which, str):
        return ev.ToolInputStarted(**ids, call_id=which, name=names[which])
    cls = ev.TextStarted if kind == "text" else ev.ReasoningStarted
    return cls(**ids, ordinal=which)


def fragment_delta(ids: Mapping[str, str], key: FragmentKey, text: str) -> ev.Event:
    """The live event that shows the next piece of a fragment."""
    kind, which = key
    if isinstance(which, str):
        return ev.ToolInputDelta(**ids, call_id=which, text=text)
    cls = ev.TextDelta if kind == "text" else ev.ReasoningDelta
    return cls(**ids, ordinal=which, text=text)


def fragment_ended(ids: Mapping[str, str], key: FragmentKey, buffer: Buffer, *, truncated: bool) -> ev.Event:
    """The boundary event that carries a fragment's whole text."""
    kind, which = key
    whole = buffer.ended()
    cut = truncated or whole.truncated
    if isinstance(which, str):
        return ev.ToolInputEnded(**ids, call_id=which, text=whole.text, truncated=cut)
    cls = ev.TextEnded if kind == "text" else ev.ReasoningEnded
    return cls(**ids, ordinal=which, text=whole.text, truncated=cut)


def tool_failed(
    ids: Mapping[str, str], call_id: str, type: str, message: str, outcome: ev.Outcome
) -> ev.ToolFailed:
    """The terminal of a call that the engine fails by itself."""
    return ev.ToolFailed(**ids, call_id=call_id, error=ErrorInfo(type=type, message=message), outcome=outcome)
