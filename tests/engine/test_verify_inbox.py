"""I10 and I11, broken by hand in logs that are otherwise legal."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from engine import events as ev
from tests.engine.log_samples import (
    ERROR,
    Book,
    bare,
    broken,
    good,
    record_of,
    running,
)

# --- I10 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "at"),
    [
        ("title", "t", "session.renamed"),
        ("status", "idle", "execution.failed"),
        ("deleted", True, "session.created"),
        ("location", "x", "session.created"),
        ("created", 0, "session.created"),
    ],
)
def test_i10_the_session_row(field: str, value: object, at: str) -> None:
    """Each field of the row that differs is named at the event that last set it."""
    record = record_of(good().events)
    assert record.session is not None
    (seq, said), *rest = broken(
        "I10", attrs.evolve(record, session=attrs.evolve(record.session, **{field: value}))
    )
    assert not rest
    assert seq == max(item.seq for item in record.events if item.type == at)
    assert said.startswith(f"the session's row says {field} {value!r}, and the log says ")


@pytest.mark.parametrize(
    ("field", "value"),
    [("state", "pending"), ("parked", True), ("delivery", "queue"), ("payload", 1), ("admitted_seq", 0)],
)
def test_i10_the_rows_of_the_inbox(field: str, value: object) -> None:
    """Each field of an input's row that differs is named."""
    record = record_of(good().events)
    first, *others = record.inputs or ()
    found = broken("I10", attrs.evolve(record, inputs=(attrs.evolve(first, **{field: value}), *others)))
    assert [said.split(", and")[0] for _, said in found] == [f"the row of input inp_a says {field} {value!r}"]


@pytest.mark.parametrize(
    ("ending", "fields", "status"),
    [
        (None, {}, "running"),
        (ev.ExecutionSucceeded, {}, "idle"),
        (ev.ExecutionFailed, {"error": ERROR}, "failed"),
        (ev.ExecutionInterrupted, {"parked_through": 1}, "interrupted"),
        (ev.ExecutionHandedOver, {}, "handed_over"),
    ],
)
def test_i10_the_status(ending: Any, fields: dict[str, Any], status: str) -> None:
    """The status that follows from each ending is the projectors' own."""
    book = running()
    if ending is not None:
        book.add(ending, **fields)
    record = record_of(book.events)
    assert record.session is not None
    assert record.session.status == status
    assert broken("I10", record) == []


def test_i10_rows_too_few_or_too_many() -> None:
    """A missing row and one that the log knows nothing of are breaches."""
    record = record_of(good().events)
    first, *others = record.inputs or ()
    assert broken("I10", attrs.evolve(record, inputs=tuple(others))) == [
        (1, "input inp_a is admitted in the log, and has no row")
    ]
    stray = attrs.evolve(first, input_id="inp_z")
    assert broken("I10", attrs.evolve(record, inputs=(first, *others, stray))) == [
        (None, "input inp_z has a row, and the log never admitted it")
    ]
    assert broken("I10", attrs.evolve(record, session=None)) == [
        (0, "the log creates the session; it has no row")
    ]


# --- I11 ---------------------------------------------------------------------------------------------


def test_i11_an_input_is_over_once() -> None:
    """Promoted twice, cancelled after its promotion, or re-classified afterwards: each is a breach."""
    book = running()
    again = book.add(ev.InputPromoted, input_id="inp_a")
    cancelled = book.add(ev.InputCancelled, input_id="inp_a")
    changed = book.add(ev.InputDeliveryChanged, input_id="inp_a", delivery="queue")
    before = "input inp_a was over with input.promoted at seq 3, and has"
    assert broken("I11", bare(book.events)) == [
        (again, f"{before} input.promoted at seq {again}"),
        (cancelled, f"{before} input.cancelled at seq {cancelled}"),
        (changed, f"{before} input.delivery_changed at seq {changed}"),
    ]


def test_i11_an_input_is_admitted_once_and_first() -> None:
    """A second admission, and a promotion of what was never admitted, are breaches."""
    book = running()
    again = book.admit("inp_a")
    stray = book.add(ev.InputPromoted, input_id="inp_z")
    assert broken("I11", bare(book.events)) == [
        (again, f"input inp_a is admitted twice: at seq 1 and at seq {again}"),
        (stray, f"input inp_z has input.promoted at seq {stray}, and had not been admitted"),
    ]


@pytest.mark.parametrize(
    ("cls", "fields"),
    [
        (ev.InputParked, {"through": 1}),
        (ev.ExecutionInterrupted, {"parked_through": 1}),
        (ev.ExecutionFailed, {"parked_through": 1, "error": ERROR}),
    ],
)
def test_i11_parked_input_waits_for_a_person(cls: Any, fields: dict[str, Any]) -> None:
    """What was parked isn't promoted before it is resumed, and what was admitted later isn't parked."""
    book = Book(by="exe_1").create()
    book.admit("inp_a")
    book.admit("inp_b")
    parked = book.add(cls, **fields)
    free = [*book.events]
    early = book.add(ev.InputPromoted, input_id="inp_a")
    assert broken("I11", bare(book.events)) == [
        (early, f"input inp_a is promoted at seq {early}, and {cls.type} at seq {parked} had parked it")
    ]
    book.events = free
    book.add(ev.InputPromoted, input_id="inp_b")
    book.add(ev.InputResumed, through=book.latest)
    book.add(ev.InputPromoted, input_id="inp_a")
    assert broken("I11", bare(book.events)) == []


def test_i11_a_failure_that_parks_nothing() -> None:
    """`execution.failed` without `parked_through` leaves the inbox alone."""
    book = Book(by="exe_1").create()
    book.admit("inp_a")
    book.add(ev.ExecutionFailed, error=ERROR)
    book.add(ev.InputPromoted, input_id="inp_a")
    assert broken("I11", bare(book.events)) == []


def test_i11_deletion_leaves_nothing_pending() -> None:
    """A deletion that forgets an input is a breach."""
    book = Book().create()
    book.admit("inp_a")
    seq = book.add(ev.SessionDeletedEvent)
    assert broken("I11", bare(book.events)) == [
        (seq, "the session is deleted at seq 2, and input inp_a is still pending")
    ]
