"""Where a session's turn stands, folded from its log: what the drain decides by.

Small and immutable, so that a plan can fold the newest events inside its transaction and throw the result
away if the transaction runs again.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from engine import events as ev


@attrs.frozen(kw_only=True)
class Turn:
    """The state of the current turn, up to and including the event `seq`."""

    seq: int = -1
    steps: int = 0  #: steps of this turn; a retry of a failed step doesn't count
    failures: int = 0  #: consecutive failed steps
    owed: bool = False  #: something promoted is unanswered, or tool results wait to be sent
    ended: bool = False  #: the latest step ended well
    calls: bool = False  #: the latest step called tools
    retry_at: int | None = None
    last_message_id: str | None = None


def apply(turn: Turn, event: ev.Event) -> Turn:
    """`turn` after one more event of its session (`seq` is moved by `advance`)."""
    match event:
        case ev.InputPromoted():
            return attrs.evolve(turn, steps=0, owed=True, ended=False)
        case ev.StepStarted():
            return attrs.evolve(
                turn,
                steps=step_number(turn, event.attempt),
                retry_at=None,
                calls=False,
                ended=False,
                last_message_id=event.assistant_message_id,
            )
        case ev.ToolCalled():
            return attrs.evolve(turn, calls=True)
        case ev.StepEnded():
            return attrs.evolve(turn, failures=0, owed=turn.calls, ended=True)
        case ev.StepFailed():
            return attrs.evolve(turn, failures=turn.failures + 1, owed=True)
        case ev.StepInterrupted():
            return attrs.evolve(turn, owed=True)
        case ev.RetryScheduled():
            return attrs.evolve(turn, retry_at=event.at)
        case ev.ExecutionSucceeded() | ev.ExecutionFailed() | ev.ExecutionInterrupted():
            return Turn(seq=turn.seq, last_message_id=turn.last_message_id)
        case _:
            return turn


def step_number(turn: Turn, attempt: int) -> int:
    """The number within its turn of a step that starts now: a retry keeps the number of the step it repeats.

    It is at least 1: a steer that joins before a retry begins the count anew, with the retry as its first.
    """
    return max(1, turn.steps + (attempt == 1))


def advance(turn: Turn, stored: Iterable[ev.Stored]) -> Turn:
    """`turn` after the stored events that follow it."""
    for item in stored:
        assert item.seq == turn.seq + 1, f"the turn is at {turn.seq}, the next event at {item.seq}"
        turn = attrs.evolve(apply(turn, item.event), seq=item.seq)
    return turn
