"""Arguments for calling a provider or a tool's handler by itself, without an engine."""

from __future__ import annotations

from typing import Any

import attrs

from engine.ports import ToolContext
from engine.records import JSON, Fence, Message, Request


def sample_request(text: str = "Hello", **changes: Any) -> Request:
    """A first request with one user message; `changes` are fields of `Request`."""
    said = Message(message_id="inp_1", role="user", parts=({"kind": "text", "text": text},))
    request = Request(
        session_id="ses_1",
        message_id="msg_1",
        execution_id="exe_1",
        model="default",
        agent="default",
        system="",
        location=None,
        attempt=1,
        messages=(said,),
        tools=(),
    )
    return attrs.evolve(request, **changes)


def sample_context(**changes: Any) -> ToolContext:
    """The context of a first call, whose progress goes nowhere; `changes` are fields of `ToolContext`."""
    context = ToolContext(
        fence=Fence(session_id="ses_1", execution_id="exe_1", owner_id="own_1", generation=1),
        assistant_message_id="msg_1",
        call_id="call_1",
        location=None,
        progress=_ignore,
    )
    return attrs.evolve(context, **changes)


def _ignore(value: JSON) -> None:
    """Nobody watches the progress of a sample."""
