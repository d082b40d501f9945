"""Where a turn stands, folded from the log."""

from __future__ import annotations

from typing import Any

import pytest

from engine import events as ev
from engine import turn
from engine.records import ErrorInfo, Usage
from engine.turn import Turn

S: dict[str, Any] = {"session_id": "ses_1"}
M: dict[str, Any] = {"session_id": "ses_1", "assistant_message_id": "msg_1"}
ERROR = ErrorInfo(type="t", message="m")
PROMOTED = ev.InputPromoted(**S, input_id="i")
CALLED = ev.ToolCalled(**M, call_id="c", name="read", input={})
ENDED = ev.StepEnded(**M, finish="stop", usage=Usage())
FAILED = ev.StepFailed(**M, error=ERROR)
INTERRUPTED = ev.StepInterrupted(**M, cause="unknown", error=ERROR)
RETRY = ev.RetryScheduled(**S, attempt=2, at=77, error=ERROR)


def started(attempt: int = 1) -> ev.Event:
    """A step's start."""
    return ev.StepStarted(**M, agent="a", model="m", attempt=attempt)


def folded(*events: ev.Event) -> Turn:
    """The turn after `events`."""
    now = Turn()
    for event in events:
        now = turn.apply(now, event)
    return now


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], Turn()),
        ([PROMOTED], Turn(owed=True)),
        ([PROMOTED, started()], Turn(steps=1, owed=True, last_message_id="msg_1")),
        ([PROMOTED, started(), ENDED], Turn(steps=1, ended=True, last_message_id="msg_1")),
        (
            [PROMOTED, started(), CALLED, ENDED],
            Turn(steps=1, owed=True, ended=True, calls=True, last_message_id="msg_1"),
        ),
        ([PROMOTED, started(), FAILED], Turn(steps=1, failures=1, owed=True, last_message_id="msg_1")),
        (
            [PROMOTED, started(), FAILED, RETRY],
            Turn(steps=1, failures=1, owed=True, retry_at=77, last_message_id="msg_1"),
        ),
        (
            [PROMOTED, started(), FAILED, RETRY, started(2)],
            Turn(steps=1, failures=1, owed=True, last_message_id="msg_1"),
        ),
        (
            [PROMOTED, started(), FAILED, RETRY, started(2), ENDED],
            Turn(steps=1, ended=True, last_message_id="msg_1"),
        ),
        ([started(), FAILED], Turn(steps=1, failures=1, owed=True, last_message_id="msg_1")),
        ([PROMOTED, started(), INTERRUPTED], Turn(steps=1, owed=True, last_message_id="msg_1")),
        ([PROMOTED, started(), ENDED, PROMOTED], Turn(owed=True, last_message_id="msg_1")),
    ],
)
def test_each_event_moves_the_turn(events: list[ev.Event], expected: Turn) -> None:
    """What is owed, how many steps and failures there were, and when a retry is due."""
    assert folded(*events) == expected


@pytest.mark.parametrize(
    "terminal",
    [
        ev.ExecutionSucceeded(**S),
        ev.ExecutionFailed(**S, error=ERROR),
        ev.ExecutionInterrupted(**S, parked_through=3),
    ],
)
def test_an_execution_terminal_ends_the_turn(terminal: ev.Event) -> None:
    """Budgets start anew and nothing is owed; only the latest message is remembered."""
    assert folded(PROMOTED, started(), FAILED, RETRY, terminal) == Turn(last_message_id="msg_1")


def test_a_hand_over_keeps_the_turn() -> None:
    """The turn goes on elsewhere: failures, steps and the retry that is due survive."""
    events = [PROMOTED, started(), FAILED, RETRY]
    assert folded(*events, ev.ExecutionHandedOver(**S)) == folded(*events)


def test_a_retry_does_not_count_as_a_step() -> None:
    """Only first attempts take one off the allowance."""
    assert folded(PROMOTED, started(), FAILED, started(2), FAILED, started(3), ENDED, started()).steps == 2


def test_a_steer_that_joins_before_a_retry_begins_the_count_with_it() -> None:
    """The allowance starts anew with a promotion, and the retry is its first step, not its zeroth."""
    assert folded(PROMOTED, started(), FAILED, PROMOTED, started(2)).steps == 1


def test_the_fold_refuses_a_gap() -> None:
    """`advance` takes each next event once, in order."""
    first = ev.Stored(event_id="e", seq=0, created=0, execution_id=None, event=PROMOTED)
    now = turn.advance(Turn(), [first])
    assert (now.seq, now.owed) == (0, True)
    for seq in (0, 2):
        with pytest.raises(AssertionError, match="the turn is at 0"):
            turn.advance(
                now, [ev.Stored(event_id="e", seq=seq, created=0, execution_id=None, event=PROMOTED)]
            )
