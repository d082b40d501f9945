"""Named statements: what they keep, in which order they list, and that none of them scans."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import apsw
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConstraintBroken, EventError
from engine.ports import Reader, Transaction
from engine.records import Phase
from engine.store import SqliteReader, SqliteTransaction, create_memory
from engine.store.queries import MIGRATIONS, QUERIES, SCHEMA_VERSION, parse_migrations, parse_queries
from tests.contracts.store_cases import NOW_MS, claim_row, event_row, input_row, recovery_row, session_row


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    """A fresh database in memory, within a transaction."""
    connection = create_memory()
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


@pytest.fixture
def tx(connection: apsw.Connection) -> SqliteTransaction:
    """A transaction that knows two sessions."""
    tx = SqliteTransaction(connection, now_ms=NOW_MS)
    tx.put_session(session_row("ses_a"))
    tx.put_session(session_row("ses_b"))
    return tx


# --- what is kept ------------------------------------------------------------------------------------

ROWS: list[tuple[Any, Callable[[Any, Any], None], Callable[[Any], Any]]] = [
    (
        session_row(location="there", title="é ü", system="s", deleted=True, status="failed"),
        lambda tx, row: tx.put_session(row),
        lambda tx: tx.session("ses_a"),
    ),
    (session_row(), lambda tx, row: tx.put_session(row), lambda tx: tx.session("ses_a")),
    (
        input_row(parked=True, state="promoted", delivery="steer", payload=None),
        lambda tx, row: tx.put_input(row),
        lambda tx: tx.input("inp_a"),
    ),
    (input_row(), lambda tx, row: tx.put_input(row), lambda tx: tx.inputs("ses_a")[0]),
    (claim_row(), lambda tx, row: tx.put_claim(row), lambda tx: tx.claim("ses_a")),
    (
        claim_row(assistant_message_id="msg_1", assistant_seq=7, interrupt_seq=9, phase=Phase.CANCELLING),
        lambda tx, row: tx.put_claim(row),
        lambda tx: tx.claims("", 9)[0],
    ),
    (recovery_row(), lambda tx, row: tx.put_recovery(row), lambda tx: tx.recovery("ses_a")),
    (
        recovery_row(
            previous_execution_id="exe_0",
            continuation_message_id="msg_1",
            wake_pending=False,
            takeovers=4,
            recovery_error="broken",
        ),
        lambda tx, row: tx.put_recovery(row),
        lambda tx: tx.quarantined(9)[0],
    ),
    (event_row(), lambda tx, row: tx.append_event(row), lambda tx: tx.event_by_id("evt_ses_a_0")),
    (
        event_row(execution_id="exe_1", metadata=b'{"a":1}', location="there", version=3),
        lambda tx, row: tx.append_event(row),
        lambda tx: tx.events("ses_a", -1, 9)[0],
    ),
    (3, lambda tx, n: tx.put_generation("ses_a", n), lambda tx: tx.generation("ses_a")),
]


@pytest.mark.parametrize(("row", "put", "get"), ROWS, ids=range(len(ROWS)))
def test_rows_come_back_as_they_were_put(tx: Any, row: Any, put: Any, get: Any) -> None:
    """Every field of every record survives, also when the row replaces another."""
    put(tx, row)
    assert get(tx) == row


@pytest.mark.parametrize(
    ("before", "after", "put", "get"),
    [
        (session_row(title="old"), session_row(title="new", deleted=True), "put_session", "session"),
        (claim_row(), claim_row(version=5, phase=Phase.UNKNOWN, owner_id="own_2"), "put_claim", "claim"),
        (recovery_row(), recovery_row(takeovers=2, wake_pending=False), "put_recovery", "recovery"),
        (input_row("ses_a"), input_row("ses_a", state="promoted", delivery="steer"), "put_input", "input"),
    ],
)
def test_a_row_is_replaced_as_a_whole(tx: Any, before: Any, after: Any, put: str, get: str) -> None:
    """Putting a row that is there replaces all of it, and makes no second one."""
    getattr(tx, put)(before)
    getattr(tx, put)(after)
    assert getattr(tx, get)("ses_a") == after


def test_what_is_not_there(tx: Transaction) -> None:
    """Unknown keys give None, an empty list, seq -1, generation 0, or a count of 0."""
    assert [tx.session("x"), tx.claim("x"), tx.input("x"), tx.recovery("x"), tx.event_by_id("x")] == [
        None
    ] * 5
    assert tx.latest_event("x", "step.started") is None
    assert [tx.inputs("x"), tx.events("x", -1, 9), tx.claims("", 9), tx.quarantined(9)] == [[]] * 4
    assert (tx.latest_seq("x"), tx.generation("x"), tx.pending_count("x"), tx.parked_count("x")) == (
        -1,
        0,
        0,
        0,
    )


def test_the_log_moves_its_sequence(tx: Transaction) -> None:
    """Appending moves the latest seq of that session alone; pages and the latest of a type follow the seq."""
    for seq in range(5):
        tx.append_event(event_row("ses_a", seq, type="a" if seq % 2 else "b"))
    tx.append_event(event_row("ses_b", 0))
    assert (tx.latest_seq("ses_a"), tx.latest_seq("ses_b")) == (4, 0)
    assert [row.seq for row in tx.events("ses_a", 1, 2)] == [2, 3]
    assert [tx.latest_event("ses_a", type) for type in ("a", "b")] == tx.events("ses_a", 2, 2)[:2]


@pytest.mark.parametrize(
    "row", [event_row(seq=0, event_id="evt_x"), event_row(seq=1, event_id="evt_ses_a_0")]
)
def test_a_seq_or_id_is_used_once(tx: Transaction, row: Any) -> None:
    """A seq that is taken, or an event id that is known, is refused and moves nothing."""
    tx.append_event(event_row())
    with pytest.raises(ConstraintBroken):
        tx.append_event(row)
    assert tx.latest_seq("ses_a") == 0


def test_sessions_and_claims_are_paged_by_id(tx: Transaction) -> None:
    """Pages go on after the last id seen; tombstones are listed too."""
    tx.put_session(session_row("ses_c", deleted=True))
    for name in ("ses_c", "ses_a", "ses_b"):
        tx.put_claim(claim_row(name))
    assert [row.session_id for row in tx.sessions("", 2)] == ["ses_a", "ses_b"]
    assert [row.session_id for row in tx.sessions("ses_b", 2)] == ["ses_c"]
    assert [row.session_id for row in tx.claims("ses_a", 1)] == ["ses_b"]


def test_claims_due_are_the_longest_expired(tx: Transaction) -> None:
    """A claim is due at its very `expires_at`; the longest expired comes first."""
    for name, expires_at in (("ses_a", 50), ("ses_b", 0), ("ses_c", 100), ("ses_d", 101)):
        tx.put_session(session_row(name))
        tx.put_claim(claim_row(name, expires_at=expires_at))
    assert [row.session_id for row in tx.claims_due(100, 9)] == ["ses_b", "ses_a", "ses_c"]
    assert [row.session_id for row in tx.claims_due(100, 1)] == ["ses_b"]


def _inputs(tx: Transaction) -> None:
    for seq, (state, delivery, parked) in enumerate(
        [
            ("pending", "queue", False),
            ("pending", "steer", False),
            ("pending", "queue", True),
            ("promoted", "queue", False),
            ("cancelled", "steer", False),
            ("pending", "queue", False),
        ]
    ):
        row = input_row(f"inp_{seq}", state=state, delivery=delivery, parked=parked, admitted_seq=seq)
        tx.put_input(row)


def test_pending_inputs(tx: Transaction) -> None:
    """Only pending and unparked ones of the delivery are offered, in order; counts see the parked."""
    _inputs(tx)
    assert [row.input_id for row in tx.inputs("ses_a")] == [f"inp_{seq}" for seq in range(6)]
    assert [row.input_id for row in tx.pending_inputs("ses_a", "queue", 9)] == ["inp_0", "inp_5"]
    assert [row.input_id for row in tx.pending_inputs("ses_a", "queue", 1)] == ["inp_0"]
    assert [row.input_id for row in tx.pending_inputs("ses_a", "steer", 9)] == ["inp_1"]
    assert (tx.pending_count("ses_a"), tx.parked_count("ses_a")) == (4, 1)


def test_parking_reaches_through_a_seq(tx: Transaction) -> None:
    """Parking and unparking touch the pending inputs of one session admitted at or before the seq."""
    _inputs(tx)
    tx.put_input(input_row("inp_other", "ses_b", admitted_seq=0))
    tx.park_inputs("ses_a", 1)
    assert [row.input_id for row in tx.inputs("ses_a") if row.parked] == ["inp_0", "inp_1", "inp_2"]
    tx.unpark_inputs("ses_a", 0)
    assert [row.input_id for row in tx.inputs("ses_a") if row.parked] == ["inp_1", "inp_2"]
    assert tx.parked_count("ses_b") == 0


def test_sessions_waiting(tx: Transaction) -> None:
    """Those with input to run and nobody at it: not claimed, quarantined, deleted or wholly parked ones."""
    names = ["ses_a", "ses_b", "claimed", "quarantined", "deleted", "parked", "promoted", "recovering"]
    for name in names:
        tx.put_session(session_row(name, deleted=name == "deleted"))
    for name in [*reversed(names), "ses_a"]:
        state = "promoted" if name == "promoted" else "pending"
        tx.put_input(input_row(f"inp_{name}", name, state=state, parked=name == "parked"))
    tx.put_claim(claim_row("claimed"))
    tx.put_recovery(recovery_row("quarantined", recovery_error="broken"))
    tx.put_recovery(recovery_row("recovering"))
    assert tx.sessions_waiting(9) == ["recovering", "ses_b", "ses_a"]
    assert tx.sessions_waiting(1) == ["recovering"]


def test_erasing_leaves_the_fence(connection: apsw.Connection, tx: Transaction) -> None:
    """Every row of the session goes but its fence, and no other session's."""
    for name in ("ses_a", "ses_b"):
        tx.append_event(event_row(name))
        tx.put_input(input_row(f"inp_{name}", name))
        tx.put_claim(claim_row(name))
        tx.put_recovery(recovery_row(name))
        tx.put_generation(name, 7)
    tx.erase_session("ses_a")
    left = {
        table: [row[0] for row in connection.execute(f"SELECT session_id FROM {table}")]
        for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        if table != "writer_mark"
    }
    assert left.pop("session_fence") == ["ses_a", "ses_b"]
    assert set(left) == {"event", "sequence", "session", "input", "execution_claim", "recovery"}
    assert all(names == ["ses_b"] for names in left.values())


def test_deleting(tx: Transaction) -> None:
    """A claim and a recovery row can be deleted, and deleting what isn't there changes nothing."""
    tx.put_claim(claim_row())
    tx.put_recovery(recovery_row())
    for _ in range(2):
        tx.delete_claim("ses_a")
        tx.delete_recovery("ses_a")
    assert (tx.claim("ses_a"), tx.recovery("ses_a")) == (None, None)


def test_rows_point_to_a_session(tx: Transaction) -> None:
    """Inputs, claims and recovery rows of a session that doesn't exist are refused."""
    for put in (
        lambda: tx.put_input(input_row(session_id="x")),
        lambda: tx.put_claim(claim_row("x")),
        lambda: tx.put_recovery(recovery_row("x")),
    ):
        with pytest.raises(ConstraintBroken):
            put()


# --- text and JSON -----------------------------------------------------------------------------------


SURROGATES = st.integers(0xD800, 0xDFFF).map(chr)


@given(text=st.lists(st.characters() | SURROGATES).map("".join))
def test_any_text_can_be_kept_and_asked_for(text: str) -> None:
    """Lone surrogates become U+FFFD, written or looked for; the rest stays as it is."""
    connection = create_memory()
    connection.execute("BEGIN IMMEDIATE")
    tx = SqliteTransaction(connection, now_ms=0)
    tx.put_session(session_row(text, title=text))
    found = tx.session(text)
    kept = re.sub(
        "[\ud800-\udfff]", "\ufffd", text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )
    assert found is not None
    assert (found.session_id, found.title) == (kept, kept)
    connection.close()


def test_a_payload_that_json_cannot_hold(tx: Transaction) -> None:
    """It is refused before anything is written."""
    with pytest.raises(EventError):
        tx.put_input(input_row(payload=float("nan")))
    assert tx.inputs("ses_a") == []


# --- the statements themselves -----------------------------------------------------------------------


def test_every_statement_belongs_to_a_method() -> None:
    """The file holds the statements of the port's methods and the writer's own, and no others."""
    own = {"writer_mark", "bump_writer_mark", "delete_writer_mark", "data_version"}
    port = {name for name in vars(Reader) | vars(Transaction) if not name.startswith("_")}
    assert set(QUERIES) - own == port - {"now_ms", "tell"}
    assert all(hasattr(SqliteTransaction, name) for name in port)
    assert all(hasattr(SqliteReader, name) for name in vars(Reader) if not name.startswith("_"))


@pytest.mark.parametrize("name", [name for name, sql in QUERIES.items() if sql.startswith("SELECT")])
def test_no_read_scans_a_table(connection: apsw.Connection, name: str) -> None:
    """Each read finds its rows by an index and, but for the list of who waits, in order without sorting."""
    params = range(1, 1 + len(set(re.findall(r"\?\d", QUERIES[name]))))
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", tuple(params))]
    scans = [
        step for step in plan if step.startswith("SCAN") and "USING" not in step and "waiting" not in step
    ]
    assert scans == []
    if name != "sessions_waiting":
        assert not [step for step in plan if "TEMP B-TREE" in step]


def test_queries_need_a_description_and_a_name_of_their_own() -> None:
    """A block without a description, or a name that is there twice, is a bug found at import."""
    assert dict(parse_queries("-- name: a\n-- What.\nSELECT 1;\n")) == {"a": "SELECT 1;"}
    with pytest.raises(AssertionError):
        parse_queries("-- name: a\nSELECT 1;\n")
    with pytest.raises(AssertionError):
        parse_queries("-- name: a\n-- What.\nSELECT 1;\n-- name: a\n-- What.\nSELECT 2;\n")


def test_migrations_are_numbered_without_gaps() -> None:
    """The scripts run by their numbers from 1, and a gap is a bug found at import."""
    assert parse_migrations({"0002_b.sql": "b", "0001_a.sql": "a", "queries.sql": "q"}) == ("a", "b")
    with pytest.raises(AssertionError):
        parse_migrations({"0002_b.sql": "b"})
    assert len(MIGRATIONS) == SCHEMA_VERSION >= 1


def test_records_are_kept_whole() -> None:
    """Each record's fields are the columns of its statement, so a new field can't be forgotten."""
    for row, name in (
        (session_row(), "put_session"),
        (input_row(), "put_input"),
        (claim_row(), "put_claim"),
        (recovery_row(), "put_recovery"),
        (event_row(), "append_event"),
    ):
        columns = re.search(r"\(([^)]*)\)", QUERIES[name])
        assert columns is not None
        assert sorted(column.strip() for column in columns[1].split(",")) == sorted(attrs.asdict(row))
