"""The facts of a step: one fold over its events, which refuses a log that no engine wrote."""

from __future__ import annotations

from typing import Any

import pytest

from engine import events as ev
from engine import facts
from engine.records import ErrorInfo, Usage

IDS: dict[str, Any] = {"session_id": "ses_1", "assistant_message_id": "msg_1"}
ERROR = ErrorInfo(type="t", message="m")
STARTED = ev.StepStarted(**IDS, agent="a", model="m", attempt=1)
TEXT = ev.TextStarted(**IDS, ordinal=0)
TEXT_END = ev.TextEnded(**IDS, ordinal=0, text="x")
CALL = ev.ToolCalled(**IDS, call_id="c", name="read", input={})
DONE = ev.ToolSucceeded(**IDS, call_id="c", output=1)
STREAMED = ev.StepStreamed(**IDS)
ENDED = ev.StepEnded(**IDS, finish="stop", usage=Usage())


def test_a_whole_step_folds_to_its_facts() -> None:
    """Fragments keep their order, calls their names, and the terminal is noted."""
    found = facts.fold([STARTED, TEXT, CALL, TEXT_END, STREAMED, DONE, ENDED])
    assert found is not None
    assert found.fragments == {("text", 0): False}
    assert found.calls == {"c": facts.CallFact(name="read", hosted=False, settled=True)}
    assert (found.streamed, found.terminal, found.visible) == (True, "step.ended", True)


def test_what_is_open_is_listed_in_order() -> None:
    """Open fragments and calls are those without an end, oldest first."""
    events = [
        STARTED,
        ev.ReasoningStarted(**IDS, ordinal=0),
        ev.ToolInputStarted(**IDS, call_id="c", name="read"),
        ev.TextStarted(**IDS, ordinal=1),
        ev.ReasoningEnded(**IDS, ordinal=0, text=""),
        CALL,
    ]
    found = facts.fold(events)
    assert found is not None
    assert found.open_fragments == (("tool.input", "c"), ("text", 1))
    assert found.open_calls == ("c",)


@pytest.mark.parametrize(
    "event",
    [
        ev.SessionRenamed(session_id="ses_1", title="t"),
        ev.InputPromoted(session_id="ses_1", input_id="i"),
        ev.StepStarted(session_id="ses_1", assistant_message_id="msg_2", agent="a", model="m", attempt=1),
        ev.TextStarted(session_id="ses_1", assistant_message_id="msg_2", ordinal=0),
    ],
)
def test_events_of_others_change_nothing(event: ev.Event) -> None:
    """What belongs to the session or to another step leaves the facts as they are."""
    found = facts.fold([STARTED, TEXT])
    assert found is not None
    assert facts.apply(found, event) is found


def test_nothing_before_the_start_counts() -> None:
    """A fold without a `step.started` finds no step."""
    assert facts.fold([TEXT, ENDED]) is None
    assert facts.fold([]) is None


def test_a_step_that_shows_nothing_is_not_visible() -> None:
    """Neither a stream's end nor a terminal is something that a reader sees."""
    found = facts.fold([STARTED, STREAMED, ENDED])
    assert found is not None
    assert not found.visible


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([TEXT, TEXT], "started twice"),
        ([TEXT_END], "wasn't open"),
        ([TEXT, TEXT_END, TEXT_END], "wasn't open"),
        ([TEXT, TEXT_END, TEXT], "started twice"),
        ([CALL, CALL], "made twice"),
        ([DONE], "wasn't made"),
        ([CALL, DONE, DONE], "settled twice"),
        ([CALL, DONE, ev.ToolFailed(**IDS, call_id="c", error=ERROR, outcome="failed")], "settled twice"),
        ([STREAMED, STREAMED], "twice"),
        ([STARTED], "started twice"),
        ([TEXT, ENDED], "open fragments"),
        ([CALL, ENDED], "open calls"),
        ([ENDED, ENDED], "after step.ended"),
        ([ENDED, TEXT], "after step.ended"),
        ([ENDED, ev.StepInterrupted(**IDS, cause="user", error=ERROR)], "after step.ended"),
    ],
)
def test_a_log_that_breaks_the_rules_is_refused(events: list[ev.Event], why: str) -> None:
    """A broken precondition is an assertion that says what was broken."""
    with pytest.raises(AssertionError, match=why):
        facts.fold([STARTED, *events])


def test_folding_changes_no_earlier_facts() -> None:
    """Facts are values: what was folded before stays as it was."""
    before = facts.fold([STARTED, TEXT])
    assert before is not None
    facts.apply_all(before, [TEXT_END, CALL, DONE])
    assert before == facts.fold([STARTED, TEXT])
