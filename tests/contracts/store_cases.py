"""What the store contract is made of: the store under test, faults to work into it, sample rows."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import apsw
import attrs
import trio

from engine.events import SessionRenamed, Stored
from engine.ports import Reader, Store, Transaction
from engine.records import Claim, EventRow, InputRow, Phase, RecoveryRow, SessionRow

NOW_MS = 1_700_000_000_000

Execute = Callable[[], Any]
Action = Callable[[apsw.Connection, Execute], Any]


# --- faults ------------------------------------------------------------------------------------------


class Faults:
    """Actions that replace the execution of a statement, next time it comes; then they are used up."""

    def __init__(self) -> None:
        self.actions: dict[str, list[Action]] = {}
        self.connection: apsw.Connection | None = None
        """The connection on which the latest work runs."""

    def on(self, sql: str, action: Action, times: int = 1) -> None:
        """Do `action(connection, execute)` instead of the next `times` executions of `sql`."""
        self.actions.setdefault(sql, []).extend([action] * times)

    def execute(self, connection: apsw.Connection, sql: str, execute: Execute) -> Any:
        if sql.startswith("SAVEPOINT"):
            self.connection = connection
        actions = self.actions.get(sql)
        return actions.pop(0)(connection, execute) if actions else execute()

    @property
    def writer(self) -> apsw.Connection:
        assert self.connection is not None, "no work has run yet"
        return self.connection

    def driver(self) -> type[apsw.Connection]:
        """A connection class that asks these faults before each statement."""
        faults = self

        class FaultyConnection(apsw.Connection):
            def execute(self, statements: str, *args: Any, **kwargs: Any) -> Any:
                run = super().execute
                return faults.execute(self, statements, lambda: run(statements, *args, **kwargs))

        return FaultyConnection

    # faults of the whole transaction, to be used inside a work

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """The database can't grow by a page."""
        pages = self.writer.execute("PRAGMA page_count").fetchall()[0][0]
        self.writer.execute(f"PRAGMA max_page_count = {pages}").fetchall()
        try:
            yield
        finally:
            self.writer.execute("PRAGMA max_page_count = 1000000").fetchall()

    @contextlib.contextmanager
    def interrupted(self) -> Iterator[None]:
        """Whatever statement runs is interrupted."""
        self.writer.set_progress_handler(lambda: True, 1)
        try:
            yield
        finally:
            self.writer.set_progress_handler(None)


def raises(exc: Exception) -> Action:
    """The statement doesn't run, and its transaction stands."""

    def action(connection: apsw.Connection, execute: Execute) -> Any:
        raise exc

    return action


def raises_unapplied(exc: Exception) -> Action:
    """The COMMIT fails, and the transaction is gone with it."""

    def action(connection: apsw.Connection, execute: Execute) -> Any:
        connection.execute("ROLLBACK")
        raise exc

    return action


def raises_applied(exc: Exception) -> Action:
    """The COMMIT is applied and yet raises."""

    def action(connection: apsw.Connection, execute: Execute) -> Any:
        execute()
        raise exc

    return action


# --- the store under test ----------------------------------------------------------------------------


@attrs.define(kw_only=True)
class StoreUnderTest:
    """A store, and the faults its connections ask."""

    store: Store
    faults: Faults


class OpenStore(Protocol):
    """How an implementation is opened for one case, over a fresh database."""

    def __call__(self, *, now_ms: Callable[[], int] = ...) -> AbstractAsyncContextManager[StoreUnderTest]: ...


def run(open_store: OpenStore, case: Callable[[StoreUnderTest], Awaitable[None]]) -> None:
    """Run one case against a fresh store."""

    async def main() -> None:
        with trio.fail_after(30):
            async with open_store() as sut:
                await case(sut)

    trio.run(main)


@attrs.define
class Recorder:
    """An observer that keeps what it is told, in one list with what else the case notes there."""

    notes: list[Any] = attrs.field(factory=list)

    def committed(self, stored: Sequence[Stored]) -> None:
        self.notes.append(("committed", [s.event_id for s in stored]))

    def changed_elsewhere(self) -> None:
        self.notes.append(("changed_elsewhere",))


# --- sample rows -------------------------------------------------------------------------------------


def session_row(session_id: str = "ses_a", **changes: Any) -> SessionRow:
    row = SessionRow(
        session_id=session_id,
        title="a title",
        location=None,
        model="m",
        agent="a",
        system="",
        created=NOW_MS,
        status="idle",
        deleted=False,
    )
    return attrs.evolve(row, **changes)


def event_row(session_id: str = "ses_a", seq: int = 0, **changes: Any) -> EventRow:
    row = EventRow(
        event_id=f"evt_{session_id}_{seq}",
        session_id=session_id,
        seq=seq,
        type="session.renamed",
        version=1,
        created=NOW_MS,
        execution_id=None,
        data=b'{"session_id":"ses_a","title":"t"}',
    )
    return attrs.evolve(row, **changes)


def input_row(input_id: str = "inp_a", session_id: str = "ses_a", **changes: Any) -> InputRow:
    row = InputRow(
        input_id=input_id,
        session_id=session_id,
        kind="user",
        delivery="queue",
        payload={"text": "hello", "n": [1, None, 0.5]},
        admitted_seq=1,
        state="pending",
        parked=False,
    )
    return attrs.evolve(row, **changes)


def claim_row(session_id: str = "ses_a", **changes: Any) -> Claim:
    row = Claim(
        session_id=session_id,
        execution_id="exe_1",
        owner_id="own_1",
        generation=1,
        phase=Phase.READY,
        assistant_message_id=None,
        assistant_seq=-1,
        expires_at=NOW_MS + 30_000,
        created_at=NOW_MS,
        version=0,
        interrupt_seq=None,
    )
    return attrs.evolve(row, **changes)


def recovery_row(session_id: str = "ses_a", **changes: Any) -> RecoveryRow:
    row = RecoveryRow(
        session_id=session_id,
        execution_id="exe_1",
        previous_execution_id=None,
        continuation_message_id=None,
        wake_pending=True,
        takeovers=1,
        recovery_error=None,
    )
    return attrs.evolve(row, **changes)


def stored(session_id: str = "ses_a", seq: int = 0) -> Stored:
    return Stored(
        event_id=f"evt_{session_id}_{seq}",
        seq=seq,
        created=NOW_MS,
        execution_id=None,
        event=SessionRenamed(session_id=session_id, title="t"),
    )


def append(session_id: str = "ses_a", **changes: Any) -> Callable[[Transaction], int]:
    """A work that appends the next event of a session, tells of it, and returns its seq."""

    def work(tx: Transaction) -> int:
        seq = tx.latest_seq(session_id) + 1
        tx.append_event(event_row(session_id, seq, **changes))
        tx.tell(stored(session_id, seq))
        return seq

    return work


def seqs(session_id: str = "ses_a") -> Callable[[Reader], list[int]]:
    """A read of the seqs that are stored of a session."""
    return lambda reader: [row.seq for row in reader.events(session_id, -1, 1_000_000)]


async def all_at_once(sut: StoreUnderTest, works: list[Any]) -> list[Any]:
    """The outcome of each work, value or exception, all written at the same time."""
    outcomes: list[Any] = [None] * len(works)

    async def one(index: int) -> None:
        try:
            outcomes[index] = await sut.store.write(works[index])
        except Exception as exc:
            outcomes[index] = exc

    async with trio.open_nursery() as nursery:
        for index in range(len(works)):
            nursery.start_soon(one, index)
    return outcomes
