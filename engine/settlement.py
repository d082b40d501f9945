"""Settlement: from the durable facts of an open step to the events that close it.

One pure function serves every path: a user's interrupt, shutdown, and take-over after a crash. The facts are
read inside the settling transaction, so it happens once or not at all, and running it twice adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from engine import events as ev
from engine.buffer import Buffer
from engine.facts import FragmentKey, StepFacts
from engine.records import ErrorInfo
from engine.step_events import fragment_ended, ids_of, tool_failed

UNKNOWN_OUTCOME = "Provider Step outcome unknown after interruption"

_REASONS: Mapping[str, ErrorInfo] = {
    "user": ErrorInfo(type="interrupted", message="interrupted by a user"),
    "shutdown": ErrorInfo(type="shutdown", message="interrupted by a shutdown"),
    "unknown": ErrorInfo(type="unknown", message=UNKNOWN_OUTCOME),
}

CONTINUATION_NOTE = (
    "The previous answer was cut off and its outcome is unknown. Tools that were running may have taken "
    "effect. Go on from what is known."
)


@attrs.frozen(kw_only=True)
class Held:
    """What this process still holds of a step; empty after a crash.

    `outcomes` are terminals of local tools that ended and weren't committed; `not_run` are calls whose tool
    this process knows it never started.
    """

    texts: Mapping[FragmentKey, Buffer] = attrs.field(factory=dict)
    outcomes: Mapping[str, ev.ToolSucceeded | ev.ToolFailed] = attrs.field(factory=dict)
    not_run: frozenset[str] = frozenset()


NOTHING_HELD = Held()


def close(facts: StepFacts | None, held: Held, cause: ev.Cause) -> list[ev.Event]:
    """The events that close the step, in order: fragments, calls, the terminal. None open: none."""
    if facts is None or facts.terminal is not None:
        return []
    ids = ids_of(facts)
    nothing = Buffer(bytes_max=1)
    return [
        *(
            fragment_ended(ids, key, held.texts.get(key, nothing), truncated=True)
            for key in facts.open_fragments
        ),
        *(_close_call(ids, call_id, held) for call_id in facts.open_calls),
        ev.StepInterrupted(**ids, cause=cause, error=_REASONS[cause]),
    ]


def _close_call(ids: dict[str, str], call_id: str, held: Held) -> ev.Event:
    known = held.outcomes.get(call_id)
    if known is not None:
        return known
    if call_id in held.not_run:
        return tool_failed(ids, call_id, "not-run", "interrupted before the tool was started", "not_run")
    text = "interrupted while it ran: it may have taken effect"
    return tool_failed(ids, call_id, "interrupted", text, "unknown")
