"""The drain's decision: from the turn, the step that just closed and the pending input to what comes next.

Pure, and the hardest choice of the engine, so it stands alone: `decide` picks a `Move`, `events` says which
events carry it, and the execution turns it into one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from engine import events as ev
from engine import retry
from engine import turn as turns
from engine.limits import EngineConfig
from engine.records import ErrorInfo, InputRow, Phase, SessionRow
from engine.step_records import Closing, Ended, Failed
from engine.turn import Turn


@attrs.frozen(kw_only=True)
class View:
    """What the drain sees inside its transaction. `fraction` (0 up to 1) is drawn before it began."""

    session: SessionRow
    turn: Turn
    closing: Closing | None  #: the step that is over and not yet terminal in the log
    closing_id: str | None  #: its message id
    steers: Sequence[InputRow]
    queued: InputRow | None
    latest_seq: int
    now_ms: int
    fraction: float
    stopping: bool = False  #: the node shuts down: no further step begins here


@attrs.frozen(kw_only=True)
class Begin:
    """Promote, and open a step; `note` is told to the model first."""

    promote: tuple[InputRow, ...]
    attempt: int
    tools_allowed: bool
    note: bool = False


@attrs.frozen(kw_only=True)
class Retry:
    """The step failed before anything was visible: try again at `at` (wall ms)."""

    at: int
    attempt: int
    error: ErrorInfo


@attrs.frozen(kw_only=True)
class Wait:
    """A retry was scheduled and its time hasn't come; nothing is written."""

    until: int


@attrs.frozen(kw_only=True)
class Rest:
    """The turn is over and another waits: the step's terminal makes the claim `safe`."""


@attrs.frozen(kw_only=True)
class Succeed:
    """Nothing is pending and nothing owed: end the execution and clear the claim, in this transaction."""


@attrs.frozen(kw_only=True)
class Fail:
    """The execution can't go on: end it, park what is pending, clear the claim."""

    error: ErrorInfo


@attrs.frozen(kw_only=True)
class HandOver:
    """The node shuts down between two steps: free the claim; `phase` None leaves it as it is.

    `retry` is a retry that is scheduled first, so that the successor waits for it; with `note` the model is
    told first that its answer was cut off, as the successor begins without knowing why.
    """

    phase: Phase | None
    retry: Retry | None = None
    note: bool = False


Move = Begin | Retry | Wait | Rest | Succeed | Fail | HandOver


def decide(view: View, config: EngineConfig) -> Move:
    """What comes next."""
    move = _decide(view, config)
    if not view.stopping or isinstance(move, Succeed | Fail):
        return move
    if view.closing is None:
        return HandOver(phase=None)
    owed = isinstance(view.closing, Failed) or _owes_results(view, view.closing, config)
    return HandOver(
        phase=Phase.CONTINUE if owed else Phase.SAFE,
        retry=move if isinstance(move, Retry) else None,
        note=isinstance(move, Begin) and move.note,
    )


def _decide(view: View, config: EngineConfig) -> Move:
    match view.closing:
        case Failed():
            return _after_failure(view, view.closing, config)
        case Ended():
            return _after_end(view, view.closing, config)
        case None:
            return _between_steps(view, config)


def _after_failure(view: View, failed: Failed, config: EngineConfig) -> Move:
    attempt = view.turn.failures + 1
    if not failed.failure.error.retryable or attempt >= config.attempts_max:
        return Fail(error=failed.failure.error)
    if failed.visible:
        # what was shown stands; the model is told, and goes on from it under a new message
        return _begin(view, config, promote=tuple(view.steers), failures=attempt, note=True)
    wait = retry.delay_ms(failed.failure, attempt=attempt, fraction=view.fraction, config=config)
    return Retry(at=view.now_ms + wait, attempt=attempt + 1, error=failed.failure.error)


def _after_end(view: View, ended: Ended, config: EngineConfig) -> Move:
    if _owes_results(view, ended, config) or view.steers:
        return _begin(view, config, promote=tuple(view.steers), failures=0)
    return Succeed() if view.queued is None else Rest()


def _owes_results(view: View, ended: Ended, config: EngineConfig) -> bool:
    """Whether tool results are to be sent; on the last step of a turn they end it instead."""
    return ended.calls and view.turn.steps < config.steps_max


def _between_steps(view: View, config: EngineConfig) -> Move:
    turn = view.turn
    # What lies further ahead than any retry may was dated by a clock that was wrong: waiting would never end.
    ahead_max = config.retry_after_ms_max + config.clock_skew_ms_max
    if turn.retry_at is not None and 0 < turn.retry_at - view.now_ms <= ahead_max:
        return Wait(until=turn.retry_at)
    exhausted = turn.ended and turn.steps >= config.steps_max
    if (turn.owed and not exhausted) or view.steers:
        return _begin(view, config, promote=tuple(view.steers), failures=turn.failures)
    if view.queued is not None:
        return _begin(view, config, promote=(view.queued,), failures=0)
    return Succeed()


def _begin(
    view: View, config: EngineConfig, *, promote: tuple[InputRow, ...], failures: int, note: bool = False
) -> Begin:
    before = attrs.evolve(view.turn, steps=0) if promote else view.turn
    return Begin(
        promote=promote,
        attempt=failures + 1,
        tools_allowed=turns.step_number(before, failures + 1) < config.steps_max,
        note=note,
    )


def terminal(view: View) -> list[ev.Event]:
    """The terminal event of the step that is closing, if one is."""
    if view.closing is None:
        return []
    assert view.closing_id is not None
    session_id, message_id = view.session.session_id, view.closing_id
    match view.closing:
        case Ended(finish=finish, usage=usage):
            return [
                ev.StepEnded(
                    session_id=session_id, assistant_message_id=message_id, finish=finish, usage=usage
                )
            ]
        case Failed(failure=failed, usage=maybe):
            return [
                ev.StepFailed(
                    session_id=session_id, assistant_message_id=message_id, error=failed.error, usage=maybe
                )
            ]


CUT_OFF_NOTE = "The previous answer was cut off by the provider. Go on from where it stopped."


def events(view: View, move: Move, message_id: str) -> list[ev.Event]:
    """The events of `move`, the closing step's terminal first; `message_id` names a step it opens."""
    session_id = view.session.session_id
    found = terminal(view)
    match move:
        case Begin():
            found += _note(session_id) if move.note else []
            found += [ev.InputPromoted(session_id=session_id, input_id=row.input_id) for row in move.promote]
            found.append(
                ev.StepStarted(
                    session_id=session_id,
                    assistant_message_id=message_id,
                    agent=view.session.agent,
                    model=view.session.model,
                    attempt=move.attempt,
                )
            )
        case Retry():
            found.append(_scheduled(session_id, move))
        case Succeed():
            found.append(ev.ExecutionSucceeded(session_id=session_id))
        case Fail():
            found.append(
                ev.ExecutionFailed(session_id=session_id, error=move.error, parked_through=view.latest_seq)
            )
        case HandOver():
            found += _note(session_id) if move.note else []
            found += [] if move.retry is None else [_scheduled(session_id, move.retry)]
            found.append(ev.ExecutionHandedOver(session_id=session_id))
        case Wait() | Rest():
            pass
    return found


def _note(session_id: str) -> list[ev.Event]:
    return [ev.Synthetic(session_id=session_id, text=CUT_OFF_NOTE, description="provider cut off")]


def _scheduled(session_id: str, move: Retry) -> ev.Event:
    return ev.RetryScheduled(session_id=session_id, attempt=move.attempt, at=move.at, error=move.error)
