"""Connections that refuse a statement, and what the engine's batch code makes of it."""

from __future__ import annotations

import pytest

from engine.errors import StoreBusy, StoreError, StoreFull, StoreReadOnly
from engine.ports import Transaction
from engine.records import SessionRow
from engine.store.batch import Item
from sim.database import SimDatabase
from sim.disk.driver import Refusal, RefusingConnection


def putting(*names: str) -> Item:
    """A work that writes so many sessions."""

    def work(tx: Transaction) -> None:
        for name in names:
            tx.put_session(
                SessionRow(
                    session_id=name,
                    title="",
                    location=None,
                    model="m",
                    agent="a",
                    system="",
                    created=0,
                    status="idle",
                    deleted=False,
                )
            )

    return Item(work=work)


def run(database: SimDatabase, refusal: Refusal, *items: Item) -> list[str]:
    """Run a batch that is refused; the sessions that are there then."""
    with database.refusing(refusal):
        database.run_batch(items, now_ms=lambda: 0, writer_id="w")
    return there(database)


def there(database: SimDatabase) -> list[str]:
    return [row.session_id for row in database.reader().sessions("", 100)]


@pytest.fixture
def database() -> SimDatabase:
    """In memory, with a connection that can refuse."""
    return SimDatabase(driver=RefusingConnection)


def test_a_lock_that_isnt_granted_fails_the_whole_batch(database: SimDatabase) -> None:
    """BEGIN is refused each time it is tried: nothing runs, and each caller has an error of its own."""
    items = [putting("a"), putting("b")]
    assert run(database, Refusal("StoreBusy", "begin"), *items) == []
    errors = [item.error for item in items]
    assert all(isinstance(error, StoreBusy) for error in errors)
    assert errors[0] is not errors[1]


@pytest.mark.parametrize("statement", [1, 2, 3])
@pytest.mark.parametrize(("error", "kind"), [("StoreFull", StoreFull), ("StoreReadOnly", StoreReadOnly)])
def test_a_statement_that_fails_takes_its_whole_work_along(
    database: SimDatabase, statement: int, error: str, kind: type[StoreError]
) -> None:
    """Whether SQLite undoes the statement or the whole transaction: of that work nothing is there, and the
    innocent works of its batch are."""
    items = [putting("a"), putting("b", "c", "d"), putting("e")]
    left = run(database, Refusal(error, "work", 1 + statement), *items)
    assert isinstance(items[1].error, kind)
    assert [item.committed for item in items] == [True, False, True]
    assert left == ["a", "e"]
    assert not database.connection.in_transaction


def test_a_statement_beyond_the_batch_refuses_nothing(database: SimDatabase) -> None:
    """A refusal that isn't met does nothing, and is gone with its batch."""
    assert run(database, Refusal("StoreFull", "work", 9), putting("a")) == ["a"]
    database.run_batch([putting(*"bcdefghijk")], now_ms=lambda: 0, writer_id="w")
    assert len(there(database)) == 11
