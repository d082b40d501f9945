"""The conversation as a provider sees it, folded from the log.

Each message of the model is one step; a step that shows nothing leaves no message. Every tool call carries
its one result, so the next request is always a legal one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from engine import events as ev
from engine.records import JSON, Message


@attrs.define
class History:
    """A growing fold; only the task that builds requests touches it."""

    seq: int = -1
    # by role, too: a client chooses the ids of its inputs, and may choose one that looks like another's
    _messages: dict[tuple[str, str], list[dict[str, Any]]] = attrs.field(factory=dict)
    _payloads: dict[str, JSON] = attrs.field(factory=dict)
    _calls: dict[tuple[str, str], dict[str, Any]] = attrs.field(factory=dict)

    def advance(self, stored: Iterable[ev.Stored]) -> None:
        """Fold the stored events that follow."""
        for item in stored:
            self._apply(item.event, item.seq)
            self.seq = item.seq

    def messages(self) -> tuple[Message, ...]:
        """The conversation so far, oldest first."""
        return tuple(
            Message(message_id=message_id, role=role, parts=tuple(dict(part) for part in parts))
            for (role, message_id), parts in self._messages.items()
            if parts
        )

    def _apply(self, event: ev.Event, seq: int) -> None:
        match event:
            case ev.InputAdmitted():
                self._payloads[event.input_id] = event.payload
            case ev.InputPromoted():
                payload = self._payloads.pop(event.input_id)
                self._messages["user", event.input_id] = [_user_part(payload)]
            case ev.InputCancelled():
                self._payloads.pop(event.input_id, None)
            case ev.Synthetic():
                self._messages["note", f"note_{seq}"] = [{"kind": "text", "text": event.text}]
            case ev.StepStarted():
                self._messages["assistant", event.assistant_message_id] = []
            case ev.StepEvent():
                self._apply_step(event)

    def _apply_step(self, event: ev.StepEvent) -> None:
        parts = self._messages["assistant", event.assistant_message_id]
        match event:
            case ev.TextEnded() if event.text:
                parts.append({"kind": "text", "text": event.text})
            case ev.ReasoningEnded() if event.text:
                parts.append({"kind": "reasoning", "text": event.text})
            case ev.ToolCalled():
                part = {
                    "kind": "tool",
                    "call_id": event.call_id,
                    "name": event.name,
                    "input": event.input,
                    "hosted": event.hosted,
                }
                parts.append(part)
                self._calls[event.assistant_message_id, event.call_id] = part
            case ev.ToolSucceeded():
                self._calls.pop((event.assistant_message_id, event.call_id))["output"] = event.output
            case ev.ToolFailed():
                part = self._calls.pop((event.assistant_message_id, event.call_id))
                part["error"] = {"type": event.error.type, "message": event.error.message}
                part["outcome"] = event.outcome


def _user_part(payload: JSON) -> dict[str, Any]:
    if isinstance(payload, dict) and isinstance(payload.get("text"), str):
        return {**payload, "kind": "text"}
    return {"kind": "data", "data": payload}


def messages_of(stored: Iterable[ev.Stored]) -> tuple[Message, ...]:
    """The conversation in a whole log."""
    history = History()
    history.advance(stored)
    return history.messages()
