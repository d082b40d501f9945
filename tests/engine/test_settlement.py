"""Settlement: from the facts of an open step to the events that close it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from engine import events as ev
from engine import facts, settlement
from engine.buffer import Buffer
from engine.records import ErrorInfo
from engine.settlement import NOTHING_HELD, Held, close

IDS: dict[str, Any] = {"session_id": "ses_1", "assistant_message_id": "msg_1"}
EVENTS = [
    ev.StepStarted(**IDS, agent="a", model="m", attempt=1),
    ev.TextStarted(**IDS, ordinal=0),
    ev.ToolInputStarted(**IDS, call_id="c1", name="read"),
    ev.ToolInputEnded(**IDS, call_id="c1", text="{}"),
    ev.ToolCalled(**IDS, call_id="c1", name="read", input={}),
    ev.ToolCalled(**IDS, call_id="c2", name="read", input={}),
    ev.ToolCalled(**IDS, call_id="c3", name="search", input={}, hosted=True),
]


def opened() -> facts.StepFacts:
    """A step with a text, two local calls and a hosted one open."""
    found = facts.fold(EVENTS)
    assert found is not None
    return found


def test_no_open_step_needs_no_event() -> None:
    """Nothing is written for no step, nor for one that has its terminal."""
    assert close(None, NOTHING_HELD, "user") == []
    whole = facts.apply_all(opened(), close(opened(), NOTHING_HELD, "user"))
    assert close(whole, NOTHING_HELD, "user") == []


def test_fragments_then_calls_then_the_terminal() -> None:
    """After a crash: empty truncated text, calls of unknown outcome, and one terminal at the end."""
    found = close(opened(), NOTHING_HELD, "unknown")
    assert found[0] == ev.TextEnded(**IDS, ordinal=0, text="", truncated=True)
    calls = found[1:-1]
    assert [c.call_id for c in calls if isinstance(c, ev.ToolFailed) and c.outcome == "unknown"] == [
        "c1",
        "c2",
        "c3",
    ]
    error = ErrorInfo(type="unknown", message="Provider Step outcome unknown after interruption")
    assert found[-1] == ev.StepInterrupted(**IDS, cause="unknown", error=error)


def test_what_is_held_goes_into_the_log() -> None:
    """Partial text is kept and marked; a result that was in but not committed counts; a call that never
    started says so."""
    done = ev.ToolSucceeded(**IDS, call_id="c1", output="ok")
    held = Held(
        texts={("text", 0): Buffer(bytes_max=99).add("half a sen")},
        outcomes={"c1": done},
        not_run=frozenset({"c2"}),
    )
    found = close(opened(), held, "user")
    assert found[0] == ev.TextEnded(**IDS, ordinal=0, text="half a sen", truncated=True)
    assert found[1] is done
    assert isinstance(found[2], ev.ToolFailed)
    assert found[2].outcome == "not_run"
    assert isinstance(found[3], ev.ToolFailed)
    assert found[3].outcome == "unknown"


def test_what_is_held_of_things_the_log_does_not_know_is_dropped() -> None:
    """A call or text whose commit never happened leaves no event: memory follows the log."""
    late = ev.ToolSucceeded(**IDS, call_id="c9", output="ok")
    held = Held(
        texts={("text", 7): Buffer(bytes_max=9).add("x")}, outcomes={"c9": late}, not_run=frozenset({"c8"})
    )
    assert close(opened(), held, "user") == close(opened(), NOTHING_HELD, "user")


def test_a_call_that_is_settled_keeps_its_result() -> None:
    """Only calls without a terminal get one."""
    settled = facts.apply(opened(), ev.ToolSucceeded(**IDS, call_id="c1", output=1))
    names = [e.call_id for e in close(settled, NOTHING_HELD, "user") if isinstance(e, ev.ToolFailed)]
    assert names == ["c2", "c3"]


@pytest.mark.parametrize(
    ("cause", "type"), [("user", "interrupted"), ("shutdown", "shutdown"), ("unknown", "unknown")]
)
def test_each_cause_has_its_own_words(cause: ev.Cause, type: str) -> None:
    """A user's interrupt, a shutdown and a lost outcome are told apart in the log."""
    last = close(opened(), NOTHING_HELD, cause)[-1]
    assert isinstance(last, ev.StepInterrupted)
    assert (last.cause, last.error.type, last.error.retryable) == (cause, type, False)


def test_a_tool_that_ran_is_never_reported_as_not_run() -> None:
    """The words for the model tell "may have taken effect" from "was not started"."""
    held = Held(not_run=frozenset({"c2"}))
    ran, didnt = (
        e for e in close(opened(), held, "user") if isinstance(e, ev.ToolFailed) and e.call_id != "c3"
    )
    assert "may have taken effect" in ran.error.message
    assert "before the tool was started" in didnt.error.message


def test_nothing_held_is_empty() -> None:
    """The shared empty value holds nothing, so that no crash inherits another's text."""
    assert attrs.asdict(NOTHING_HELD) == {"texts": {}, "outcomes": {}, "not_run": frozenset()}
    assert settlement.CONTINUATION_NOTE
