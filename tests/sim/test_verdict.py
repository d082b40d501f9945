"""A violation says first what happened, then which rule and where, then shows it."""

from __future__ import annotations

import json

from sim.trace import Entry
from sim.verdict import Violation

ENTRY = Entry(7, 31_000.0, "node", "a.1", "", "paused", {})
WHOLE = Violation(
    rule="I3",
    sentence="a stalled 9.2 s from 22.0 s on; a renewed its claim",
    detail="a renewed the claim of exe_a",
    session="ses_s",
    node="a.1",
    true_ms=40_350.0,
    clocks={"a": 34_350, "b": 40_350},
    entry=7,
    around=(ENTRY,),
)


def test_the_message_begins_with_the_sentence() -> None:
    """Then come the rule, the scenario's session, the incarnation, true time and each clock."""
    place = "I3, session s, node a.1, at 40.350 s true time, a's clock 34.350 s, b's clock 40.350 s"
    assert str(WHOLE) == f"{WHOLE.sentence} ({place})"
    assert WHOLE.lines() == [WHOLE.sentence, place, "#7        31.000 s  a.1  node paused"]


def test_a_violation_of_the_whole_run_has_its_rule_alone() -> None:
    """What isn't known isn't said; an expectation names its line."""
    assert str(Violation(rule="I16", sentence="it never rested")) == "it never rested (I16)"
    assert (
        str(Violation(rule="expect", sentence="no", line=32, session="s"))
        == "no (expect, session s, line 32)"
    )


def test_the_json_holds_it_all() -> None:
    """Plain data: the sentence, what broke with its ids, and the entries as lines."""
    facts = json.loads(json.dumps(WHOLE.as_json()))
    assert (facts["sentence"], facts["detail"]) == (WHOLE.sentence, WHOLE.detail)
    assert (facts["rule"], facts["session"], facts["clocks"]) == ("I3", "ses_s", {"a": 34_350, "b": 40_350})
    assert facts["around"] == WHOLE.lines()[2:]
