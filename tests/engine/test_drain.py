"""The drain's decision: a row of the table for each case."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from engine import drain
from engine import events as ev
from engine.drain import Begin, Fail, HandOver, Rest, Retry, Succeed, View, Wait
from engine.limits import EngineConfig
from engine.records import ErrorInfo, InputRow, Phase, SessionRow, Usage
from engine.retry import failure
from engine.step import Closing, Ended, Failed
from engine.turn import Turn

CONFIG = EngineConfig(steps_max=3, attempts_max=3)
FARTHEST_MS = CONFIG.retry_after_ms_max + CONFIG.clock_skew_ms_max
SESSION = SessionRow(
    session_id="ses_1", title="", location=None, model="m", agent="a", system="", created=0, status="running",
    deleted=False,
)  # fmt: skip


def row(input_id: str, delivery: str, seq: int = 0) -> InputRow:
    """A pending input."""
    return InputRow(
        input_id=input_id, session_id="ses_1", kind="user", delivery=delivery, payload=None, admitted_seq=seq,
        state="pending", parked=False,
    )  # fmt: skip


S1, S2, Q1 = row("s1", "steer"), row("s2", "steer"), row("q1", "queue")
GOOD = Ended(finish="stop", usage=Usage(), calls=False)
CALLS = Ended(finish="tool_calls", usage=Usage(), calls=True)
SLOW = Failed(failure=failure("rate_limit", "slow"), usage=None, visible=False)
CUT = Failed(failure=failure("incomplete", "cut"), usage=None, visible=True)
AUTH = Failed(failure=failure("auth", "no"), usage=None, visible=False)


def view(closing: Closing | None = None, turn: Turn | None = None, **more: Any) -> View:
    """What the drain sees; by default nothing waits and nothing is owed."""
    given: dict[str, Any] = {"steers": (), "queued": None, "latest_seq": 9, "now_ms": 1000, "fraction": 0.5}
    closing_id = None if closing is None else "msg_1"
    return View(
        session=SESSION, turn=turn or Turn(), closing=closing, closing_id=closing_id, **{**given, **more}
    )


def begin(*promote: InputRow, attempt: int = 1, tools: bool = True, note: bool = False) -> Begin:
    """The move that opens a step."""
    return Begin(promote=promote, attempt=attempt, tools_allowed=tools, note=note)


OWED = Turn(owed=True)
LAST = Turn(owed=True, ended=True, calls=True, steps=3)

CASES: dict[str, tuple[View, drain.Move]] = {
    # between steps
    "nothing waits": (view(), Succeed()),
    "a queued input begins a turn": (view(queued=Q1), begin(Q1)),
    "steers go before the queue, in order": (view(steers=(S1, S2), queued=Q1), begin(S1, S2)),
    "what was promoted is answered": (view(turn=OWED), begin()),
    "what is owed goes before the queue": (view(turn=OWED, queued=Q1), begin()),
    "steers join what is owed": (view(turn=OWED, steers=(S1,)), begin(S1)),
    "a retry waits for its time": (view(turn=Turn(owed=True, failures=1, retry_at=1001)), Wait(until=1001)),
    "a steer does not hurry a retry": (
        view(turn=Turn(owed=True, failures=1, retry_at=1001), steers=(S1,)),
        Wait(until=1001),
    ),
    "a retry that is due begins": (
        view(turn=Turn(owed=True, failures=1, steps=1, retry_at=1000)),
        begin(attempt=2),
    ),
    "a retry waits as long as any may, and a clock's error": (
        view(turn=Turn(owed=True, failures=1, retry_at=1000 + FARTHEST_MS)),
        Wait(until=1000 + FARTHEST_MS),
    ),
    "a retry that a wrong clock dated later than that begins": (
        view(turn=Turn(owed=True, failures=1, steps=1, retry_at=1001 + FARTHEST_MS)),
        begin(attempt=2),
    ),
    "the last step's calls end the turn": (view(turn=LAST), Succeed()),
    "the last step's calls let the queue go on": (view(turn=LAST, queued=Q1), begin(Q1)),
    "an interrupted last step is answered without tools": (
        view(turn=Turn(owed=True, steps=3)),
        begin(tools=False),
    ),
    # after a good step
    "an answer ends the execution": (view(GOOD), Succeed()),
    "an answer rests for the queue": (view(GOOD, queued=Q1), Rest()),
    "a steer joins at the boundary": (view(GOOD, steers=(S1,), queued=Q1), begin(S1)),
    "tool results are sent": (view(CALLS, Turn(steps=1)), begin()),
    "the step before the last sends results without tools": (view(CALLS, Turn(steps=2)), begin(tools=False)),
    "the last step sends nothing": (view(CALLS, Turn(steps=3)), Succeed()),
    "the last step rests for the queue": (view(CALLS, Turn(steps=3), queued=Q1), Rest()),
    "a steer resets the allowance": (view(CALLS, Turn(steps=3), steers=(S1,)), begin(S1)),
    # after a failed step
    "nothing visible is retried": (view(SLOW), Retry(at=3000, attempt=2, error=SLOW.failure.error)),
    "the wait doubles": (view(SLOW, Turn(failures=1)), Retry(at=5000, attempt=3, error=SLOW.failure.error)),
    "the budget ends": (view(SLOW, Turn(failures=2)), Fail(error=SLOW.failure.error)),
    "a retry lets steers wait": (
        view(SLOW, steers=(S1,)),
        Retry(at=3000, attempt=2, error=SLOW.failure.error),
    ),
    "an error that waiting can't mend fails": (view(AUTH), Fail(error=AUTH.failure.error)),
    "a visible error that waiting can't mend fails": (
        view(attrs.evolve(AUTH, visible=True)),
        Fail(error=AUTH.failure.error),
    ),
    "what was visible goes on with a note": (view(CUT, Turn(steps=1)), begin(attempt=2, note=True)),
    "a steer joins what goes on": (view(CUT, Turn(steps=1), steers=(S1,)), begin(S1, attempt=2, note=True)),
    "going on shares the budget": (view(CUT, Turn(steps=1, failures=2)), Fail(error=CUT.failure.error)),
    "going on keeps the step's number": (view(CUT, Turn(steps=3)), begin(attempt=2, tools=False, note=True)),
    # while the node shuts down
    "shutdown, nothing waits": (view(stopping=True), Succeed()),
    "shutdown, an answer": (view(GOOD, stopping=True), Succeed()),
    "shutdown, a failure": (view(AUTH, stopping=True), Fail(error=AUTH.failure.error)),
    "shutdown between steps": (view(turn=OWED, stopping=True), HandOver(phase=None)),
    "shutdown before the queue": (view(queued=Q1, stopping=True), HandOver(phase=None)),
    "shutdown while a retry waits": (
        view(turn=Turn(owed=True, retry_at=5000), stopping=True),
        HandOver(phase=None),
    ),
    "shutdown, results owed": (view(CALLS, Turn(steps=1), stopping=True), HandOver(phase=Phase.CONTINUE)),
    "shutdown, last step, queue": (
        view(CALLS, Turn(steps=3), queued=Q1, stopping=True),
        HandOver(phase=Phase.SAFE),
    ),
    "shutdown, rest": (view(GOOD, queued=Q1, stopping=True), HandOver(phase=Phase.SAFE)),
    "shutdown, steer": (view(GOOD, steers=(S1,), stopping=True), HandOver(phase=Phase.SAFE)),
    "shutdown, retry": (
        view(SLOW, stopping=True),
        HandOver(phase=Phase.CONTINUE, retry=Retry(at=3000, attempt=2, error=SLOW.failure.error)),
    ),
    "shutdown, visible": (view(CUT, Turn(steps=1), stopping=True), HandOver(phase=Phase.CONTINUE, note=True)),
}


@pytest.mark.parametrize("case", CASES)
def test_each_case_has_its_move(case: str) -> None:
    """The table says what comes next, and that each boundary says it in the right events."""
    seen, move = CASES[case]
    assert drain.decide(seen, CONFIG) == move


def test_with_one_step_the_first_has_no_tools() -> None:
    """An allowance of one step is one answer, also where a steer joins before a retry."""
    one = EngineConfig(steps_max=1)
    assert drain.decide(view(queued=Q1), one) == begin(Q1, tools=False)
    retried = Turn(owed=True, failures=1, steps=1, retry_at=0)
    assert drain.decide(view(turn=retried, steers=(S1,)), one) == begin(S1, attempt=2, tools=False)


NOTE = ev.Synthetic(session_id="ses_1", text=drain.CUT_OFF_NOTE, description="provider cut off")
STEP_ENDED = ev.StepEnded(session_id="ses_1", assistant_message_id="msg_1", finish="stop", usage=Usage())
STEP_FAILED = ev.StepFailed(session_id="ses_1", assistant_message_id="msg_1", error=SLOW.failure.error)
STARTED = ev.StepStarted(session_id="ses_1", assistant_message_id="msg_2", agent="a", model="m", attempt=2)
PROMOTED = [ev.InputPromoted(session_id="ses_1", input_id=name) for name in ("s1", "s2")]
RETRY = Retry(at=7, attempt=2, error=SLOW.failure.error)
SCHEDULED = ev.RetryScheduled(session_id="ses_1", attempt=2, at=7, error=SLOW.failure.error)
HANDED = ev.ExecutionHandedOver(session_id="ses_1")

EVENTS: dict[str, tuple[View, drain.Move, list[ev.Event]]] = {
    "begin": (view(), begin(S1, S2, attempt=2), [*PROMOTED, STARTED]),
    "boundary": (view(GOOD), begin(S1, S2, attempt=2), [STEP_ENDED, *PROMOTED, STARTED]),
    "go on": (view(SLOW), begin(attempt=2, note=True), [STEP_FAILED, NOTE, STARTED]),
    "retry": (view(SLOW), RETRY, [STEP_FAILED, SCHEDULED]),
    "wait": (view(), Wait(until=9), []),
    "rest": (view(GOOD), Rest(), [STEP_ENDED]),
    "succeed": (view(GOOD), Succeed(), [STEP_ENDED, ev.ExecutionSucceeded(session_id="ses_1")]),
    "fail": (
        view(SLOW),
        Fail(error=SLOW.failure.error),
        [STEP_FAILED, ev.ExecutionFailed(session_id="ses_1", error=SLOW.failure.error, parked_through=9)],
    ),
    "hand over": (view(), HandOver(phase=None), [HANDED]),
    "hand over a retry": (
        view(SLOW),
        HandOver(phase=Phase.CONTINUE, retry=RETRY),
        [STEP_FAILED, SCHEDULED, HANDED],
    ),
    "hand over a note": (view(SLOW), HandOver(phase=Phase.CONTINUE, note=True), [STEP_FAILED, NOTE, HANDED]),
}


@pytest.mark.parametrize("case", EVENTS)
def test_each_move_has_its_events(case: str) -> None:
    """The closing step's terminal comes first, the end of the execution or the next step's start last."""
    seen, move, expected = EVENTS[case]
    assert drain.events(seen, move, "msg_2") == expected


def test_a_terminal_carries_what_the_step_cost() -> None:
    """Usage is part of both terminals."""
    usage = Usage(input_tokens=3)
    (ended,) = drain.terminal(view(attrs.evolve(GOOD, usage=usage)))
    (failed,) = drain.terminal(view(attrs.evolve(SLOW, usage=usage)))
    assert isinstance(ended, ev.StepEnded)
    assert isinstance(failed, ev.StepFailed)
    assert (ended.usage, failed.usage) == (usage, usage)
    assert drain.terminal(view()) == []


def test_errors_in_the_log_say_whether_they_could_be_retried() -> None:
    """An execution's failure is the step's own error, not a copy in other words."""
    move = drain.decide(view(AUTH), CONFIG)
    assert move == Fail(error=ErrorInfo(type="auth", message="no", retryable=False))
