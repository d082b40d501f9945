"""The events that a step and its settlement write."""

from __future__ import annotations

from typing import Any

import pytest

from engine import events as ev
from engine.buffer import Buffer
from engine.facts import FragmentKey, StepFacts
from engine.step_events import fragment_delta, fragment_ended, fragment_started, ids_of, tool_failed

IDS: dict[str, Any] = ids_of(StepFacts(session_id="ses_1", message_id="msg_1"))


@pytest.mark.parametrize(
    ("key", "started", "delta", "ended"),
    [
        (("text", 0), ev.TextStarted, ev.TextDelta, ev.TextEnded),
        (("reasoning", 1), ev.ReasoningStarted, ev.ReasoningDelta, ev.ReasoningEnded),
        (("tool.input", "c"), ev.ToolInputStarted, ev.ToolInputDelta, ev.ToolInputEnded),
    ],
)
def test_each_kind_of_fragment_has_its_three_events(
    key: FragmentKey, started: type, delta: type, ended: type
) -> None:
    """A fragment's key picks the classes, and its ordinal or call id goes into each event."""
    first = fragment_started(IDS, key, {"c": "read"})
    second = fragment_delta(IDS, key, "x")
    third = fragment_ended(IDS, key, Buffer(bytes_max=9).add("x"), truncated=False)
    assert [type(first), type(second), type(third)] == [started, delta, ended]
    for event in (first, second, third):
        assert getattr(event, "ordinal", None) == key[1] or getattr(event, "call_id", None) == key[1]
        assert (event.session_id, event.assistant_message_id) == ("ses_1", "msg_1")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "asked", "marked"), [("x", False, False), ("x", True, True), ("xxxx", False, True)]
)
def test_the_end_of_a_fragment_is_marked_if_anything_is_missing(text: str, asked: bool, marked: bool) -> None:
    """Truncated by the caller's word or by the buffer's bound: the boundary event says so."""
    event = fragment_ended(IDS, ("text", 0), Buffer(bytes_max=2).add(text), truncated=asked)
    assert isinstance(event, ev.TextEnded)
    assert event.truncated is marked


def test_the_end_of_a_fragment_replaces_a_half_pair_that_still_waits() -> None:
    """What the log gets is text that UTF-8 can hold."""
    event = fragment_ended(IDS, ("text", 0), Buffer(bytes_max=9).add("x\ud83d"), truncated=False)
    assert event == ev.TextEnded(**IDS, ordinal=0, text="x\ufffd")


def test_a_failed_call_says_whether_it_ran() -> None:
    """The outcome is part of the terminal: the model must not take a half-run tool for one never started."""
    event = tool_failed(IDS, "c", "t", "m", "unknown")
    assert (event.error.type, event.error.message, event.outcome) == ("t", "m", "unknown")
