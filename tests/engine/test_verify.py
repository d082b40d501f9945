"""What is clean, what is pending, what is whole (I8), and what happens when something can't be read."""

from __future__ import annotations

import attrs
import pytest

from engine import events as ev
from engine.store import SqliteReader, create_memory
from engine.verify import (
    CHECKS,
    NOT_CHECKABLE,
    Unreadable,
    UnreadableRow,
    read_session,
    session_ids,
    verify_session,
)
from tests.engine.log_samples import (
    SES,
    Book,
    bare,
    broken,
    good,
    record_of,
    running,
    store,
    unreadable,
)

# --- what is clean -----------------------------------------------------------------------------------


def test_a_long_legal_log_is_clean() -> None:
    """A session that saw every kind of event breaks nothing, and nothing of it waits."""
    book = good()
    record = record_of(book.events)
    assert {item.type for item in book.events} >= {t for (t, _), c in ev.REGISTRY.items() if c.durable} - {
        "session.deleted"
    }
    findings = verify_session(record)
    assert findings.ok
    assert findings.breaches == ()
    assert findings.pending == ()


def test_every_invariant_has_its_place() -> None:
    """Each of I1 to I16 is either checked or said to be not checkable, and I6 and I7 count as checked."""
    assert sorted([*CHECKS, *NOT_CHECKABLE]) == sorted(f"I{number}" for number in range(1, 17))
    assert list(CHECKS) == ["I1", "I4", "I5", "I6", "I7", "I8", "I10", "I11", "I13"]


def test_an_unknown_session_is_empty_and_clean() -> None:
    """A session that was purged between two reads shows nothing, and no breach."""
    record = read_session(SqliteReader(create_memory()), "ses_gone")
    assert verify_session(record).ok
    assert record.events == ()


def test_sessions_are_listed_page_by_page() -> None:
    """Every session of a database is listed once, in the order of ids, beyond one page, too."""
    tx = store(good().events)
    row = tx.session(SES)
    assert row is not None
    names = [f"ses_{number:05}" for number in range(1_500)]
    for name in names:
        tx.put_session(attrs.evolve(row, session_id=name))
    assert session_ids(tx) == sorted([*names, SES])


def test_a_tombstone_is_clean() -> None:
    """A deleted session whose inputs were cancelled breaks nothing."""
    book = running()
    book.answer("msg_1")
    book.add(ev.ExecutionSucceeded)
    book.admit("inp_b")
    book.add(ev.InputCancelled, input_id="inp_b")
    book.add(ev.SessionDeletedEvent)
    assert verify_session(record_of(book.events)).ok


# --- I8 ----------------------------------------------------------------------------------------------


def test_i8_gaps_and_ends() -> None:
    """A gap, a log that doesn't begin at 0, and an end before the noted one are breaches."""
    events = good().events
    assert broken("I8", bare([*events[:3], *events[4:]])) == [(4, "seq 4 follows seq 2; it should be 3")]
    assert (1, "seq 1 begins the log; it should be 0") in broken("I8", bare(events[1:]))
    assert broken("I8", bare(events[:5], latest_seq=5)) == [
        (None, "the log ends at seq 4, and the session's latest seq is noted as 5")
    ]


def test_i8_event_ids_are_unique() -> None:
    """One id at two seqs is a breach."""
    events = good().events
    events[6] = attrs.evolve(events[6], event_id="evt_2")
    assert broken("I8", bare(events)) == [(6, "event id evt_2 is used at seq 2 and at seq 6")]


def test_i8_creation_is_first_and_once() -> None:
    """A log that starts otherwise, or creates its session again, is a breach; so is a row without events."""
    book = Book()
    book.admit("inp_a")
    again = book.create().latest
    assert broken("I8", bare(book.events)) == [
        (0, "the log starts with input.admitted, not with session.created"),
        (again, f"the session is created again at seq {again}"),
    ]
    row = record_of(good().events).session
    assert broken("I8", attrs.evolve(bare([]), session=row)) == [
        (None, "the session has a row and not a single event")
    ]


def test_i8_deletion_is_last() -> None:
    """Nothing is written to a tombstone."""
    book = Book().create()
    book.add(ev.SessionDeletedEvent)
    seq = book.add(ev.SessionRenamed, title="")
    assert broken("I8", bare(book.events)) == [
        (seq, "session.renamed at seq 2 follows the session's deletion at seq 1")
    ]


# --- what can't be read ------------------------------------------------------------------------------


def test_an_unreadable_event_is_named_and_the_rest_is_checked() -> None:
    """Its type and reason are reported, and a breach elsewhere is still found."""
    book = good()
    tx = store(book.events)
    row = tx.events(SES, book.latest - 1, 1)[0]
    tx.append_event(
        attrs.evolve(row, seq=book.latest + 1, event_id="evt_x", type="session.painted", version=3)
    )
    tx.append_event(attrs.evolve(row, seq=book.latest + 2, event_id="evt_y", data=b"{"))
    tx.append_event(attrs.evolve(row, seq=book.latest + 9, event_id="evt_z"))
    findings = verify_session(read_session(tx, SES))
    assert [(each.type, each.seq) for each in findings.unreadable if isinstance(each, Unreadable)] == [
        ("session.painted", book.latest + 1),
        ("session.renamed", book.latest + 2),
    ]
    assert "session.painted version 3" in findings.unreadable[0].reason
    assert [(each.invariant, each.seq) for each in findings.breaches] == [("I8", book.latest + 9)]
    assert not findings.ok


@pytest.mark.parametrize("kind", [None, "some.novelty"])
def test_nothing_is_called_missing_that_an_unreadable_event_may_hold(kind: str | None) -> None:
    """Whatever one event of a legal log becomes unreadable, of a known or a new type, nothing is broken."""
    events = good().events
    for seq in range(1, len(events)):
        hidden = unreadable(seq, kind or events[seq].type, events[seq].execution_id)
        record = attrs.evolve(record_of(events), events=(*events[:seq], hidden, *events[seq + 1 :]))
        findings = verify_session(record)
        assert findings.breaches == (), f"{events[seq].type} at seq {seq}"
        assert findings.unreadable == (hidden,)


def test_a_claim_that_cant_be_read_may_hold_an_open_step() -> None:
    """Nothing is called forgotten while the row that might remember it is unreadable."""
    book = running()
    book.open_step("msg_1")
    hidden = UnreadableRow(session_id=SES, table="execution_claim", reason="dancing")
    findings = verify_session(record_of(book.events, rows_unreadable=(hidden,)))
    assert findings.breaches == ()
    assert findings.unreadable == (hidden,)


def test_an_unreadable_event_excuses_only_what_it_may_hold() -> None:
    """What lies wholly after it is judged: a step that ends twice, a call that never began."""
    book = running()
    book.open_step("msg_1")
    book.step("msg_1", ev.TextStarted, ordinal=0)
    book.step("msg_1", ev.TextEnded, ordinal=0, text="")
    book.end_step("msg_1")
    book.end_step("msg_1")
    book.open_step("msg_2")
    events = [*book.events[:5], unreadable(5), *book.events[6:]]
    record = bare(events)
    assert [seq for seq, _ in broken("I4", record)] == [8, 9]
    assert broken("I5", record) == []


def test_rows_beside_the_log_that_cant_be_read_are_named() -> None:
    """An input whose payload isn't JSON, and a claim in a phase nobody knows, are unreadable, and no more."""
    connection = create_memory()
    source = store(good().events)._connection
    with connection.backup("main", source, "main") as copy:
        copy.step()
    connection.execute("UPDATE input SET payload = x'7b' WHERE input_id = 'inp_a'")
    connection.execute(
        "INSERT INTO execution_claim"
        " VALUES ('ses_1', 'exe_9', 'own_1', 7, 'dancing', NULL, -1, 5, 5, 1, NULL)"
    )
    findings = verify_session(read_session(SqliteReader(connection), SES))
    assert [getattr(each, "table", None) for each in findings.unreadable] == ["input", "execution_claim"]
    assert "dancing" in findings.unreadable[1].reason
    assert findings.breaches == ()
    assert not findings.ok
