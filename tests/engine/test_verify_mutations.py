"""Legal logs of every shape are clean, and one that was tampered with is noticed, whatever was done to it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import events as ev
from engine.verify import CHECKS, verify_session
from tests.engine.log_samples import Book, bare, books, good, record_of

Events = Sequence[ev.Stored]

FORGOTTEN = {
    "execution.succeeded",
    "execution.interrupted",
    "execution.handed_over",
    "execution.failed",
    "input.promoted",
}
"""What may go missing unnoticed by the log alone, where it isn't the last: an ending looks like a crash that
was recovered, and an input like one that still waits. The projections tell (I10)."""

ENDINGS = ("execution.succeeded", "execution.failed", "execution.interrupted", "execution.handed_over")


def renumbered(events: Events) -> list[ev.Stored]:
    return [attrs.evolve(item, seq=seq) for seq, item in enumerate(events)]


def noticed(events: Events) -> set[str]:
    """The invariants that a log by itself shows broken: I10, which compares with tables, is left out."""
    record = bare(events)
    return {name for name, check in CHECKS.items() if name != "I10" for _ in check(record)}


def index_of(book: Book) -> st.SearchStrategy[int]:
    return st.integers(0, book.latest)


@given(books())
def test_a_legal_log_is_clean(book: Book) -> None:
    """Whatever executions and steps a log has, and however they ended, nothing is called broken."""
    findings = verify_session(record_of(book.events))
    assert findings.breaches == ()
    assert findings.ok


@given(books(), st.data())
def test_a_gap_is_noticed(book: Book, data: st.DataObject) -> None:
    """An event that is missing leaves a gap, or an end before the noted one."""
    at = data.draw(index_of(book))
    record = record_of(book.events)
    tampered = attrs.evolve(record, events=(*book.events[:at], *book.events[at + 1 :]))
    assert "I8" in {each.invariant for each in verify_session(tampered).breaches}


@settings(max_examples=200)
@given(books(), st.data())
def test_a_missing_event_is_noticed_by_those_that_need_it(book: Book, data: st.DataObject) -> None:
    """An event cut out with the seam closed is missed by its counterpart, but for a few; see `FORGOTTEN`."""
    at = data.draw(index_of(book))
    item = book.events[at]
    left = noticed(renumbered([*book.events[:at], *book.events[at + 1 :]]))
    if item.type not in FORGOTTEN or at == book.latest:
        assert left, f"{item.type} at seq {at} may go missing"


@settings(max_examples=200)
@given(books(), st.data())
def test_a_missing_event_is_noticed_by_the_tables(book: Book, data: st.DataObject) -> None:
    """A promotion that was cut out is missed by the inbox's rows."""
    promoted = [item.seq for item in book.events if item.type == "input.promoted"]
    at = data.draw(st.sampled_from(promoted))
    record = record_of(book.events)
    cut = renumbered([*book.events[:at], *book.events[at + 1 :]])
    found = verify_session(attrs.evolve(record, events=tuple(cut), latest_seq=None)).breaches
    assert any(each.invariant == "I10" and "says state 'promoted'" in each.sentence for each in found)


@settings(max_examples=200)
@given(books(), st.data())
def test_an_event_that_comes_twice_is_noticed(book: Book, data: st.DataObject) -> None:
    """Every event of these logs happens once: a copy with a fresh id and seq breaks something."""
    at, to = sorted((data.draw(index_of(book)), data.draw(index_of(book))))
    copy = attrs.evolve(book.events[at], event_id="evt_copy")
    events = renumbered([*book.events[: to + 1], copy, *book.events[to + 1 :]])
    assert noticed(events), f"{copy.type} of seq {at} copied to behind seq {to}"


def depends(first: ev.Stored, second: ev.Stored) -> bool:
    """Whether `second` can't have happened before `first`."""
    a, b = first.event, second.event
    if isinstance(a, ev.SessionCreated):
        return True
    own = first.execution_id == second.execution_id is not None
    if own and (first.type == "execution.started" or second.type in ENDINGS):
        return True
    if second.type == "execution.started" and first.execution_id is not None:
        return True
    if isinstance(a, ev.InputAdmitted) and isinstance(b, ev.InputPromoted):
        return a.input_id == b.input_id
    if not (isinstance(a, ev.StepEvent) and isinstance(b, ev.StepEvent)):
        return False
    if a.assistant_message_id != b.assistant_message_id:
        return isinstance(b, ev.StepStarted)
    closing = isinstance(b, ev.STEP_TERMINALS)
    return closing or isinstance(a, ev.StepStarted) or _closes(a, b)


def _closes(a: ev.Event, b: ev.Event) -> bool:
    same = getattr(a, "ordinal", getattr(a, "call_id", None)) == getattr(
        b, "ordinal", getattr(b, "call_id", None)
    )
    ends = {
        ev.TextStarted: (ev.TextEnded,),
        ev.ReasoningStarted: (ev.ReasoningEnded,),
        ev.ToolInputStarted: (ev.ToolInputEnded,),
        ev.ToolCalled: (ev.ToolSucceeded, ev.ToolFailed),
    }
    return same and isinstance(b, ends.get(type(a), ()))


@settings(max_examples=200)
@given(books(), st.data())
def test_two_events_in_the_wrong_order_are_noticed(book: Book, data: st.DataObject) -> None:
    """Neighbours of which one needs the other can't change places."""
    pairs = [at for at in range(book.latest) if depends(book.events[at], book.events[at + 1])]
    at = data.draw(st.sampled_from(pairs))
    swapped = [*book.events[:at], book.events[at + 1], book.events[at], *book.events[at + 2 :]]
    first, second = book.events[at : at + 2]
    assert noticed(renumbered(swapped)), f"{first.type} and {second.type} at seq {at} change places"


@settings(max_examples=200)
@given(books(), st.data())
def test_a_foreign_execution_id_is_noticed(book: Book, data: st.DataObject) -> None:
    """An event under another execution's id, under none, or a client's under any, breaks I1."""
    at = data.draw(index_of(book))
    item = book.events[at]
    ids = [None, "exe_9", *{each.execution_id for each in book.events if each.execution_id}]
    other = data.draw(st.sampled_from(sorted({str(each) for each in ids} - {str(item.execution_id)})))
    changed = attrs.evolve(item, execution_id=None if other == "None" else other)
    assert "I1" in noticed([*book.events[:at], changed, *book.events[at + 1 :]])


@settings(max_examples=200)
@given(books(), st.data())
def test_an_event_id_that_is_used_twice_is_noticed(book: Book, data: st.DataObject) -> None:
    """Any two events of a session with one id break I8."""
    at = data.draw(st.integers(1, book.latest))
    other = data.draw(st.integers(0, at - 1))
    changed = attrs.evolve(book.events[at], event_id=book.events[other].event_id)
    assert noticed([*book.events[:at], changed, *book.events[at + 1 :]]) == {"I8"}


@settings(max_examples=200)
@given(books(), st.data())
def test_an_event_of_another_step_is_noticed(book: Book, data: st.DataObject) -> None:
    """A step's event under another message id is missed in its own step, or too many in the other."""
    own = [item for item in book.events if isinstance(item.event, ev.StepEvent)]
    if not own:
        return
    item = data.draw(st.sampled_from(own))
    changed = attrs.evolve(item, event=attrs.evolve(item.event, assistant_message_id="msg_9"))
    assert noticed([*book.events[: item.seq], changed, *book.events[item.seq + 1 :]]) & {"I4", "I5", "I6"}


def test_what_may_change_places() -> None:
    """In the long log, exactly the neighbours that don't need each other may change places unnoticed."""
    events = good().events
    silent = {
        (events[at].type, events[at + 1].type)
        for at in range(len(events) - 1)
        if not noticed(renumbered([*events[:at], events[at + 1], events[at], *events[at + 2 :]]))
    }
    assert not any(depends(a, b) for a, b in itertools.pairwise(events) if (a.type, b.type) in silent)
    assert ("step.failed", "retry.scheduled") not in silent
    assert ("input.resumed", "input.admitted") in silent
