"""The conversation as a provider sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import events as ev
from engine import facts, settlement, step
from engine.history import History, messages_of
from engine.records import ErrorInfo, Message, Usage
from tests.engine.step_model import CONFIG, IDS, STARTED, fresh, histories
from tests.engine.step_model import History as Inputs

S: dict[str, Any] = {"session_id": "ses_1"}
CALLED = ev.ToolCalled(**IDS, call_id="c", name="read", input={"x": 1})


def stored(events: Iterable[ev.Event]) -> list[ev.Stored]:
    """The events as a log holds them."""
    return [
        ev.Stored(event_id=f"e{seq}", seq=seq, created=0, execution_id=None, event=event)
        for seq, event in enumerate(events)
    ]


def asked(input_id: str, payload: Any) -> list[ev.Event]:
    """An input, admitted and promoted."""
    admitted = ev.InputAdmitted(**S, input_id=input_id, kind="user", delivery="queue", payload=payload)
    return [admitted, ev.InputPromoted(**S, input_id=input_id)]


def parts(*events: ev.Event) -> list[dict[str, Any]]:
    """The parts of the one step in `events`."""
    (message,) = [m for m in messages_of(stored([STARTED, *events])) if m.role == "assistant"]
    return [dict(part) for part in message.parts]


def test_a_conversation_in_order() -> None:
    """Inputs are the user's messages by the order of promotion, steps the model's, notes stand between."""
    events = [
        *asked("in_1", {"text": "hello"}),
        STARTED,
        ev.ReasoningStarted(**IDS, ordinal=0),
        ev.ReasoningEnded(**IDS, ordinal=0, text="hm"),
        ev.TextStarted(**IDS, ordinal=1),
        ev.TextEnded(**IDS, ordinal=1, text="hi"),
        ev.StepEnded(**IDS, finish="stop", usage=Usage()),
        ev.Synthetic(**S, text="go on", description="d"),
        *asked("in_2", [1, 2]),
    ]
    assert messages_of(stored(events)) == (
        Message(message_id="in_1", role="user", parts=({"kind": "text", "text": "hello"},)),
        Message(
            message_id="msg_1",
            role="assistant",
            parts=({"kind": "reasoning", "text": "hm"}, {"kind": "text", "text": "hi"}),
        ),
        Message(message_id="note_8", role="note", parts=({"kind": "text", "text": "go on"},)),
        Message(message_id="in_2", role="user", parts=({"kind": "data", "data": [1, 2]},)),
    )


def test_a_call_carries_its_result() -> None:
    """Output, or the error as the model sees it, with whether the tool took effect."""
    call = {"kind": "tool", "call_id": "c", "name": "read", "input": {"x": 1}, "hosted": False}
    assert parts(CALLED, ev.ToolSucceeded(**IDS, call_id="c", output="ok")) == [{**call, "output": "ok"}]
    error = ErrorInfo(type="t", message="m", details={"secret": 1})
    failed = ev.ToolFailed(**IDS, call_id="c", error=error, outcome="unknown")
    assert parts(CALLED, failed) == [{**call, "error": {"type": "t", "message": "m"}, "outcome": "unknown"}]


def test_a_step_that_showed_nothing_leaves_no_message() -> None:
    """Neither empty text nor an input that became no call: a provider would refuse an empty message."""
    events = [
        STARTED,
        ev.TextStarted(**IDS, ordinal=0),
        ev.TextEnded(**IDS, ordinal=0, text="", truncated=True),
        ev.ToolInputStarted(**IDS, call_id="c", name="read"),
        ev.ToolInputEnded(**IDS, call_id="c", text="{", truncated=True),
    ]
    assert messages_of(stored(events)) == ()


def test_the_same_call_id_in_two_steps_is_two_calls() -> None:
    """Providers number their calls anew with each answer."""
    other = {**IDS, "assistant_message_id": "msg_2"}
    events: list[ev.Event] = [STARTED, CALLED, ev.ToolSucceeded(**IDS, call_id="c", output=1)]
    events += [
        ev.StepStarted(**other, agent="a", model="m", attempt=1),
        ev.ToolCalled(**other, call_id="c", name="read", input={}),
        ev.ToolSucceeded(**other, call_id="c", output=2),
    ]
    assert [m.parts[0]["output"] for m in messages_of(stored(events))] == [1, 2]


@pytest.mark.parametrize("input_id", ["note_2", "msg_1"])
def test_an_input_whose_id_looks_like_anothers_replaces_nothing(input_id: str) -> None:
    """Clients choose the ids of their inputs; no choice makes a message vanish."""
    note = ev.Synthetic(**S, text="note", description="d")
    text = [ev.TextStarted(**IDS, ordinal=0), ev.TextEnded(**IDS, ordinal=0, text="hi")]
    messages = messages_of(stored([*asked(input_id, {"text": "mine"}), note, STARTED, *text]))
    assert [(m.role, m.parts[0]["text"]) for m in messages] == [
        ("user", "mine"),
        ("note", "note"),
        ("assistant", "hi"),
    ]


def test_a_payload_cannot_pass_for_another_kind_of_part() -> None:
    """A client's own `kind` doesn't turn its text into a tool call without an id."""
    (message,) = messages_of(stored(asked("i", {"text": "x", "kind": "tool", "more": 1})))
    assert message.parts == ({"text": "x", "kind": "text", "more": 1},)


def test_input_that_was_cancelled_or_waits_is_not_shown() -> None:
    """Only what was promoted is part of the conversation."""
    admitted, _ = asked("a", {"text": "a"})
    other, _ = asked("b", {"text": "b"})
    assert messages_of(stored([admitted, other, ev.InputCancelled(**S, input_id="a")])) == ()


def test_growing_page_by_page_is_the_same_as_at_once() -> None:
    """The fold may stop anywhere and go on; what it handed out before doesn't change."""
    log = stored(
        [*asked("i", {"text": "x"}), STARTED, CALLED, ev.ToolSucceeded(**IDS, call_id="c", output=1)]
    )
    growing = History()
    snapshots = []
    for item in log:
        growing.advance([item])
        snapshots.append((growing.messages(), messages_of(log[: item.seq + 1])))
    assert all(mine == whole for mine, whole in snapshots)
    assert growing.seq == 4
    assert "output" not in snapshots[3][0][1].parts[0]


@settings(max_examples=150)
@given(histories(), st.integers(0, 30), st.sampled_from(["user", "shutdown", "unknown"]))
def test_after_settlement_at_any_cut_each_call_has_exactly_one_result(
    inputs: Inputs, cut: int, cause: ev.Cause
) -> None:
    """Wherever a step is cut off, the next request holds each call once, with its one result."""
    state = fresh(tools_allowed=inputs.tools_allowed)
    log: list[ev.Event] = [STARTED]
    for item in inputs.items[:cut]:
        decision = step.decide(state, item, CONFIG)
        state = decision.state
        log += decision.durable
        if decision.closing is not None:
            break
    found = facts.fold(log)
    log += settlement.close(found, settlement.Held(texts=state.texts), cause)
    assert found is not None
    shown = [part for message in messages_of(stored(log)) for part in message.parts if part["kind"] == "tool"]
    assert [part["call_id"] for part in shown] == list(found.calls)
    for part in shown:
        assert ("output" in part) != ("error" in part)
        assert ("error" in part) == ("outcome" in part)
