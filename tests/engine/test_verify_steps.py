"""I4, I5, I6 and I13, broken by hand in logs that are otherwise legal."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from engine import events as ev
from tests.engine.log_samples import (
    ERROR,
    Found,
    bare,
    broken,
    claim,
    recovery,
    running,
)

# --- I4 ----------------------------------------------------------------------------------------------


def test_i4_a_step_has_one_terminal() -> None:
    """A second terminal is named with both seqs."""
    book = running()
    book.open_step("msg_1")
    first = book.end_step("msg_1")
    second = book.step("msg_1", ev.StepFailed, error=ERROR)
    said = f"step msg_1 has two terminals: step.ended at seq {first} and step.failed at seq {second}"
    assert broken("I4", bare(book.events)) == [(second, said)]


def test_i4_nothing_follows_the_terminal() -> None:
    """An event of a step that is over is a breach."""
    book = running()
    book.open_step("msg_1")
    end = book.end_step("msg_1")
    late = book.step("msg_1", ev.StepStreamed)
    said = f"step msg_1 goes on after its terminal: step.ended at seq {end}, step.streamed at seq {late}"
    assert broken("I4", bare(book.events)) == [(late, said)]


def test_i4_a_step_starts_once_and_first() -> None:
    """A step that starts again, or whose events precede its start, is a breach."""
    book = running()
    early = book.step("msg_1", ev.StepStreamed)
    started = book.open_step("msg_1")
    again = book.open_step("msg_1")
    book.end_step("msg_1")
    assert broken("I4", bare(book.events)) == [
        (early, f"step msg_1 has step.streamed at seq {early}, and had not started"),
        (again, f"step msg_1 starts twice: at seq {started} and at seq {again}"),
    ]


def test_i4_without_a_claim_a_step_must_have_ended() -> None:
    """An open step is a breach at rest, and none while claimed, quarantined, or released and not run yet."""
    book = running()
    seq = book.open_step("msg_1")
    record = bare(book.events)
    assert broken("I4", record) == [(seq, "step msg_1 has no terminal, and nobody holds the session's claim")]
    for exempt in ({"claim": claim()}, {"recovery": recovery("boom")}, {"recovery": recovery(None)}):
        assert broken("I4", attrs.evolve(record, **exempt)) == []


# --- I5 and I6 ---------------------------------------------------------------------------------------

FRAGMENTS = [
    (ev.TextStarted, {"ordinal": 0}, ev.TextEnded, {"ordinal": 0, "text": ""}, "text 0"),
    (ev.ReasoningStarted, {"ordinal": 2}, ev.ReasoningEnded, {"ordinal": 2, "text": ""}, "reasoning 2"),
    (
        ev.ToolInputStarted,
        {"call_id": "c", "name": "n"},
        ev.ToolInputEnded,
        {"call_id": "c", "text": ""},
        "tool input c",
    ),
    (
        ev.ToolCalled,
        {"call_id": "c", "name": "n", "input": {}},
        ev.ToolFailed,
        {"call_id": "c", "error": ERROR, "outcome": "failed"},
        "call c",
    ),
]


@pytest.mark.parametrize(("opens", "with_", "closes", "saying", "name"), FRAGMENTS)
def test_i5_i6_what_opens_closes_once(
    opens: Any, with_: dict[str, Any], closes: Any, saying: dict[str, Any], name: str
) -> None:
    """A fragment or call that begins twice, ends twice, ends unbegun or stays open is a breach of its own."""
    invariant, name = ("I6" if name.startswith("call") else "I5"), f"{name} of step msg_1"

    def found(*what: Any) -> Found:
        book = running()
        book.open_step("msg_1")
        for cls in what:
            book.step("msg_1", cls, **(with_ if cls is opens else saying))
        book.end_step("msg_1")
        return broken(invariant, bare(book.events))

    assert found(opens, closes) == []
    assert found(opens, opens, closes) == [(6, f"{name} begins twice: at seq 5 and at seq 6")]
    assert found(opens, closes, closes) == [
        (7, f"{name} has two ends: {closes.type} at seq 6 and {closes.type} at seq 7")
    ]
    assert found(closes) == [(5, f"{name} has {closes.type}, and had not begun")]
    assert found(closes, opens)[0] == (5, f"{name} has {closes.type}, and had not begun")
    assert found(opens) == [(6, f"{name} began at seq 5 and is open when its step closes with step.ended")]


def test_i5_the_same_ordinal_in_another_step_is_another_fragment() -> None:
    """Fragments and calls are told apart by their step."""
    book = running()
    book.answer("msg_1")
    book.open_step("msg_2")
    book.step("msg_2", ev.TextEnded, ordinal=0, text="")
    book.end_step("msg_2")
    assert [seq for seq, _ in broken("I5", bare(book.events))] == [9]


def test_i6_a_late_result_doesnt_settle_a_call() -> None:
    """A call settled after its step's terminal counts as open at the terminal."""
    book = running()
    book.open_step("msg_1")
    book.call("msg_1", "c1")
    end = book.end_step("msg_1")
    book.step("msg_1", ev.ToolSucceeded, call_id="c1", output=None)
    assert [seq for seq, _ in broken("I6", bare(book.events))] == [end]


# --- I13 ---------------------------------------------------------------------------------------------


def test_i13_a_terminal_stands_between_two_steps() -> None:
    """A step that starts while another is open is a breach, also if the other ends later."""
    book = running()
    first = book.open_step("msg_1")
    second = book.open_step("msg_2")
    book.end_step("msg_1")
    book.end_step("msg_2")
    said = f"a step starts at seq {second}, and step msg_1 of seq {first} has no terminal before it"
    assert broken("I13", bare(book.events)) == [(second, said)]


@pytest.mark.parametrize("shown", ["text.started", "reasoning.started", "tool.input.started", "tool.called"])
def test_i13_no_retry_after_something_visible(shown: str) -> None:
    """A step that showed a fragment or a call isn't tried again."""
    book = running()
    book.open_step("msg_1")
    cls = ev.REGISTRY[shown, 1]
    fields = {"ordinal": 0} if "ordinal" in attrs.fields_dict(cls) else {"call_id": "c", "name": "n"}
    seen = book.step("msg_1", cls, **fields, **({"input": {}} if cls is ev.ToolCalled else {}))
    book.step("msg_1", ev.StepFailed, error=ERROR)
    retry = book.add(ev.RetryScheduled, attempt=2, at=0, error=ERROR)
    said = f"a retry is scheduled for step msg_1, which had shown {shown} at seq {seen}"
    assert broken("I13", bare(book.events)) == [(retry, said)]


def test_i13_a_retry_follows_a_failure_and_is_scheduled_once() -> None:
    """A retry without a step, of a step that ended well, or a second one, is a breach."""
    book = running()
    early = book.add(ev.RetryScheduled, attempt=2, at=0, error=ERROR)
    assert broken("I13", bare(book.events)) == [(early, "a retry is scheduled, and no step has started")]
    book = running()
    book.open_step("msg_1")
    book.end_step("msg_1")
    first = book.add(ev.RetryScheduled, attempt=2, at=0, error=ERROR)
    second = book.add(ev.RetryScheduled, attempt=2, at=0, error=ERROR)
    said = "a retry is scheduled for step msg_1, which had not failed"
    assert broken("I13", bare(book.events)) == [
        (first, said),
        (second, said),
        (second, f"two retries of one step are scheduled: at seq {first} and at seq {second}"),
    ]


def test_i13_each_failed_step_has_its_own_retry() -> None:
    """Two attempts that failed unseen, each with its retry, are right."""
    book = running()
    for attempt in (1, 2):
        book.open_step(f"msg_{attempt}", attempt)
        book.step(f"msg_{attempt}", ev.StepFailed, error=ERROR)
        book.add(ev.RetryScheduled, attempt=attempt + 1, at=0, error=ERROR)
    assert broken("I13", bare(book.events)) == []
