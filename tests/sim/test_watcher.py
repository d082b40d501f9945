"""In what a publisher's memory and the log differ is said thing by thing."""

from __future__ import annotations

import attrs
import pytest

from engine.facts import CallFact, StepFacts
from sim.watcher import difference

STEP = StepFacts(session_id="ses_s", message_id="msg_1")
CALL = CallFact(name="slow", hosted=False, settled=False)


@pytest.mark.parametrize(
    ("held", "logged", "said"),
    [
        ({}, {"fragments": {("text", 0): True}}, "text 0 is missing in its memory and open in the log"),
        (
            {"fragments": {("text", 0): False}},
            {"fragments": {("text", 0): True}},
            "text 0 is ended in its memory and open in the log",
        ),
        ({"calls": {"c1": CALL}}, {}, "call c1 is open in its memory and missing in the log"),
        (
            {"calls": {"c1": CALL}},
            {"calls": {"c1": attrs.evolve(CALL, settled=True)}},
            "call c1 is open in its memory and settled in the log",
        ),
        ({"streamed": True}, {}, "the stream is ended in its memory and open in the log"),
        ({}, {"terminal": "step.ended"}, "its terminal is missing in its memory and step.ended in the log"),
        (
            {"streamed": True, "calls": {"c1": CALL}},
            {},
            "call c1 is open in its memory and missing in the log, "
            "the stream is ended in its memory and open in the log",
        ),
        ({}, {}, ""),
    ],
)
def test_each_difference_is_named(held: dict[str, object], logged: dict[str, object], said: str) -> None:
    """What, as the memory has it, and as the log has it; what is equal isn't mentioned."""
    assert difference(attrs.evolve(STEP, **held), attrs.evolve(STEP, **logged)) == said


def test_a_log_without_the_step_or_without_sense() -> None:
    """A log that lacks the step, or that no step could have written, is said to be so."""
    assert difference(STEP, None) == "the log has no such step"
    assert difference(STEP, "what can't be: a step twice") == "the log says what can't be: a step twice"
