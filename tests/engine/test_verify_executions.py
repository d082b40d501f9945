"""I1 and I7, broken by hand in logs that are otherwise legal."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from engine import events as ev
from engine.records import Phase
from engine.verify import (
    verify_session,
)
from tests.engine.log_samples import (
    Book,
    bare,
    broken,
    claim,
    claimed,
    record_of,
    recovery,
    running,
)

# --- I1 ----------------------------------------------------------------------------------------------


def test_i1_an_event_after_its_successor_started() -> None:
    """A write of an execution that was taken over is named with both executions."""
    book = running()
    book.start("exe_2", 2, "exe_1")
    book.by = "exe_1"
    late = book.add(ev.Synthetic, text="late", description="")
    said = "synthetic of execution exe_1 comes after execution exe_2 took the session at seq 4"
    assert broken("I1", bare(book.events)) == [(late, said)]


def test_i1_an_event_of_an_execution_that_never_started() -> None:
    """An id that no `execution.started` carries is a breach."""
    book = running()
    book.by = "exe_9"
    seq = book.add(ev.Synthetic, text="", description="")
    assert broken("I1", bare(book.events)) == [
        (seq, "synthetic belongs to execution exe_9, which had not started")
    ]


def test_i1_generations_must_grow() -> None:
    """A generation that stands still or goes back is a breach."""
    book = running()
    again = book.start("exe_2", 1, "exe_1")
    assert broken("I1", bare(book.events)) == [(again, "generation 1 follows generation 1")]


def test_i1_the_fence_is_not_behind_the_log() -> None:
    """A fence that was reset would let an old generation come again."""
    book = running()
    assert broken("I1", bare(book.events, generation=0)) == [
        (2, "the log has come to generation 1, and the session's fence stands at 0")
    ]


def test_i1_an_execution_starts_once() -> None:
    """An execution id is fresh each time."""
    book = running()
    again = book.start("exe_1", 2)
    assert broken("I1", bare(book.events)) == [(again, f"execution exe_1 starts twice: at seq 2 and {again}")]


def test_i1_ids_are_carried_by_executions_and_not_by_clients() -> None:
    """A promotion without an execution, and an admission with one, are breaches."""
    book = running()
    with_id = attrs.evolve(book.events[1], execution_id="exe_1")
    without = attrs.evolve(book.events[3], execution_id=None)
    found = broken("I1", bare([book.events[0], with_id, book.events[2], without]))
    assert (1, "input.admitted is written by clients, and carries execution exe_1") in found
    assert (3, "input.promoted is written by executions, and carries no execution id") in found


def test_i1_an_execution_ends_once_and_then_is_silent() -> None:
    """A second ending, and anything after the first, are breaches."""
    book = running()
    ended = book.add(ev.ExecutionSucceeded)
    note = book.add(ev.Synthetic, text="", description="")
    again = book.add(ev.ExecutionHandedOver)
    who = f"execution exe_1 ended with execution.succeeded at seq {ended}"
    assert broken("I1", bare(book.events)) == [
        (note, f"{who}, and goes on with synthetic at seq {note}"),
        (again, f"{who}, and ends again with execution.handed_over at seq {again}"),
    ]


def test_i1_a_take_over_names_the_execution_before_it() -> None:
    """`previous_execution_id` is the latest execution, and one that didn't end."""
    book = running()
    ended = book.add(ev.ExecutionSucceeded)
    second = book.start("exe_2", 2, "exe_1")
    third = book.start("exe_3", 3, "exe_1")
    assert broken("I1", bare(book.events)) == [
        (
            second,
            f"it takes over from execution exe_1, which ended with execution.succeeded at seq {ended}",
        ),
        (third, "it takes over from execution exe_1, and the latest one before it was exe_2"),
    ]


@pytest.mark.parametrize("change", [{"execution_id": "exe_9"}, {"generation": 7}])
def test_i1_the_claim_is_the_latest_execution(change: dict[str, Any]) -> None:
    """A claim of an execution that left no trace is a breach."""
    book = running()
    assert broken("I1", bare(book.events, claim=claim()) if not change else claimed(book, **change))
    assert broken("I1", claimed(book)) == []


def test_i1_clearing_a_cancelled_claim_leaves_no_trace() -> None:
    """A take-over that only clears `cancelled` writes no `execution.started`, and that is right."""
    book = running()
    book.add(ev.ExecutionInterrupted, parked_through=book.latest)
    taken = claimed(book, execution_id="exe_2", generation=2, phase=Phase.CANCELLED)
    assert broken("I1", taken) == []
    assert broken("I7", taken) == []
    assert broken("I1", claimed(book, execution_id="exe_2", generation=2)) != []


# --- I7 ----------------------------------------------------------------------------------------------


def test_i7_an_execution_without_end_or_claim_is_forgotten() -> None:
    """No recovery could find it, unless the session is quarantined or released."""
    record = bare(running().events)
    said = "execution exe_1 has no end, and there is no claim that recovery could find"
    assert broken("I7", record) == [(2, said)]
    assert broken("I7", attrs.evolve(record, recovery=recovery("boom"))) == []
    assert broken("I7", attrs.evolve(record, recovery=recovery(None))) == []
    assert broken("I7", attrs.evolve(record, claim=claim())) == []


def test_i7_a_hand_over_leaves_a_claim() -> None:
    """A turn that was handed over to nobody is a breach; with the free claim it is pending."""
    book = running()
    seq = book.add(ev.ExecutionHandedOver)
    assert broken("I7", bare(book.events)) == [
        (seq, "execution exe_1 handed over, and the claim to take over is gone")
    ]
    assert broken("I7", claimed(book, expires_at=0)) == []
    assert [seq for seq, _ in broken("I7", claimed(book))] == [seq]


@pytest.mark.parametrize(
    ("ending", "change", "good"),
    [
        (None, {}, True),
        (None, {"expires_at": 0}, False),
        (None, {"phase": Phase.CANCELLED}, False),
        (None, {"phase": Phase.CANCELLING}, True),
        (ev.ExecutionSucceeded, {}, False),
        (ev.ExecutionInterrupted, {}, False),
        (ev.ExecutionInterrupted, {"phase": Phase.CANCELLED}, True),
        (ev.ExecutionInterrupted, {"phase": Phase.CANCELLED, "expires_at": 1}, True),
    ],
)
def test_i7_a_claim_and_the_log_agree_on_the_end(ending: Any, change: dict[str, Any], good: bool) -> None:
    """Success clears the claim; an interrupt leaves it `cancelled`; a hand-over leaves it free."""
    book = running()
    if ending is not None:
        fields = {"parked_through": 1} if ending is ev.ExecutionInterrupted else {}
        book.add(ending, **fields)
    assert (broken("I7", claimed(book, **change)) == []) is good


def test_i7_a_claim_and_the_log_agree_on_the_open_step() -> None:
    """A claim that names a closed step, no step, or an old seq would have the wrong thing settled."""
    book = running()
    seq = book.open_step("msg_1")
    right = {"phase": Phase.UNKNOWN, "assistant_message_id": "msg_1", "assistant_seq": seq}
    assert broken("I7", claimed(book, **right)) == []
    assert broken("I7", claimed(book, assistant_seq=seq)) == [
        (seq, "the claim (phase continue) says the open step is none, the log says msg_1")
    ]
    assert broken("I7", claimed(book, **{**right, "assistant_seq": 1})) == [
        (seq, f"the claim says the latest step started at seq 1, the log says {seq}")
    ]
    book.end_step("msg_1")
    assert broken("I7", claimed(book, **right)) == [
        (seq, "the claim (phase unknown) says the open step is msg_1, the log says none")
    ]


def test_i7_a_deleted_session_has_no_claim() -> None:
    """A deletion commits only without a claim."""
    book = Book().create()
    book.add(ev.SessionDeletedEvent)
    assert broken("I7", claimed(book)) == [
        (None, "the session is deleted, and execution exe_1 holds its claim")
    ]


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"claim": claim()}, "claim", "phase continue (expires at 9000): its node is at work, or"),
        ({"claim": claim(expires_at=0)}, "claim", "(handed over)"),
        ({"claim": claim(phase=Phase.CANCELLING)}, "claim", "an interrupt is to be settled"),
        ({"claim": claim(phase=Phase.CANCELLED)}, "claim", "the claim is to be cleared"),
        ({"recovery": recovery("boom")}, "quarantined", "releases or discards it: boom"),
        ({"recovery": recovery(None)}, "released", "not executed since"),
    ],
)
def test_what_waits_is_pending(change: dict[str, Any], kind: str, words: str) -> None:
    """Claims, quarantines and releases are named as pending, one per session."""
    (found,) = verify_session(attrs.evolve(record_of(running().events), **change)).pending
    assert found.kind == kind
    assert words in found.sentence


def test_input_that_nobody_picked_up_is_pending() -> None:
    """Unparked input without a claim waits for a node; parked input waits for a person and isn't named."""
    book = Book().create()
    book.admit("inp_a")
    findings = verify_session(record_of(book.events))
    assert findings.ok
    assert [each.kind for each in findings.pending] == ["input"]
    book.add(ev.InputParked, through=1)
    assert verify_session(record_of(book.events)).pending == ()
