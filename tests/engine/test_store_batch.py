"""The group commit against a naive model: whatever fails, each work is applied once or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import (
    ClaimLost,
    CommitOutcomeUnknown,
    StoreError,
    StoreFull,
    StoreInterrupted,
    StoreIOError,
)
from engine.ports import Transaction
from engine.store import BatchResult, Item, create_memory, restore_memory, run_batch
from engine.store.sqlite import begin_immediate
from tests.contracts.store_cases import (
    NOW_MS,
    Faults,
    event_row,
    raises,
    raises_applied,
    raises_unapplied,
    session_row,
    stored,
)

TEMPLATE = create_memory()

FAULTS: dict[str, type[Exception]] = {
    "raises": ClaimLost,
    "full_statement": StoreFull,
    "full_disk": StoreFull,
    "interrupted": StoreInterrupted,
    "swallowed": StoreInterrupted,
}

COMMITS: dict[str, Callable[[Exception], Any]] = {
    "unapplied": raises_unapplied,
    "standing": raises,
    "applied": raises_applied,
}


ENDERS = ("full_disk", "interrupted", "swallowed")
"""The faults that make SQLite end the whole transaction."""


@attrs.frozen
class Plan:
    """One work of a drawn batch: a session to append to, how often, and how it fails, if it does."""

    session: str
    events: int
    fault: str | None


@attrs.frozen
class Batch:
    """A drawn batch: its works, and how its COMMIT fails, if it does."""

    plans: tuple[Plan, ...]
    commit: str | None


PLANS = st.builds(
    Plan, st.sampled_from(["ses_a", "ses_b"]), st.integers(0, 3), st.sampled_from([None, None, None, *FAULTS])
)
BATCHES = st.builds(
    Batch, st.lists(PLANS, max_size=7).map(tuple), st.sampled_from([None, None, None, *COMMITS])
)


class World:
    """A database in memory with its faults, and the batches that ran on it."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.connection = restore_memory(TEMPLATE, self.faults.driver())
        self.locks = 0

    def run(self, items: list[Item]) -> BatchResult:
        return run_batch(
            self.connection,
            items,
            now_ms=lambda: NOW_MS,
            writer_id="wrt_1",
            lock=self._lock,
            reopen=lambda: self.connection,
        )

    def _lock(self, connection: apsw.Connection) -> None:
        self.locks += 1
        begin_immediate(connection, sleep=lambda seconds: None, timeout_ms=0)

    def item(self, plan: Plan) -> Item:
        def work(tx: Transaction) -> list[int]:
            seqs = []
            for _ in range(plan.events):
                seqs.append(tx.latest_seq(plan.session) + 1)
                tx.append_event(event_row(plan.session, seqs[-1]))
                tx.tell(stored(plan.session, seqs[-1]))
            self._fail(tx, plan.fault)
            return seqs

        return Item(work=work)

    def _fail(self, tx: Transaction, fault: str | None) -> None:
        if fault == "raises":
            raise ClaimLost("lost")
        if fault == "swallowed":
            try:
                self._fail(tx, "interrupted")
            except StoreInterrupted:
                return
        if fault == "full_statement":  # a statement with a journal of its own is undone alone
            with self.faults.full_disk():
                tx.append_event(event_row("ses_x", 0, data=b"x" * 1_000_000))
        if fault in ("full_disk", "interrupted"):
            with getattr(self.faults, fault)():
                tx.put_session(session_row("ses_x", title="x" * 1_000_000))

    def log(self) -> dict[str, list[int]]:
        rows = self.connection.execute(
            "SELECT session_id, seq FROM event ORDER BY session_id, seq"
        ).fetchall()
        log: dict[str, list[int]] = {}
        for session_id, seq in rows:
            log.setdefault(session_id, []).append(seq)
        return log


@settings(max_examples=150, deadline=None)
@given(batches=st.lists(BATCHES, max_size=4))
def test_batches_agree_with_the_model(batches: list[Batch]) -> None:
    """Log, values, told events and errors are what running the works one by one would give."""
    world, model = World(), {"ses_a": 0, "ses_b": 0}
    for batch in batches:
        items = [world.item(plan) for plan in batch.plans]
        enders = sum(plan.fault in ENDERS for plan in batch.plans)
        commits = any(plan.fault is None for plan in batch.plans) and enders <= 3
        fails = batch.commit if commits else None
        if fails is not None:
            world.faults.on("COMMIT", COMMITS[fails](apsw.IOError("sick")))
        world.run(items)
        assert not world.connection.in_transaction
        lost = fails in ("unapplied", "standing")
        for plan, item in zip(batch.plans, items, strict=True):
            if lost and plan.fault not in ENDERS:
                assert type(item.error) is StoreIOError
            elif plan.fault is not None:
                assert type(item.error) is FAULTS[plan.fault]
            else:
                first = model[plan.session]
                model[plan.session] += plan.events
                assert item.value == list(range(first, model[plan.session]))
                assert [told.seq for told in item.told] == item.value
            assert item.committed is (item.error is None)
            assert item.committed or (item.value, item.told) == (None, ())
        assert world.log() == {name: list(range(count)) for name, count in model.items() if count}


def test_a_batch_commits_once() -> None:
    """Many works share one COMMIT, and one lock."""
    world, commits = World(), []
    world.faults.on("COMMIT", lambda _, execute: commits.append(execute()), times=9)
    world.run([world.item(Plan("ses_a", 1, None)) for _ in range(50)])
    assert (len(commits), world.locks) == (1, 1)


def test_a_batch_without_success_commits_nothing() -> None:
    """If every work failed by itself there is no COMMIT that could fail, and each keeps its own error."""
    world = World()
    world.faults.on("COMMIT", raises(apsw.IOError("sick")))
    items = [world.item(Plan("ses_a", 1, "raises")) for _ in range(3)]
    world.run(items)
    assert [type(item.error) for item in items] == [ClaimLost] * 3


def test_whatever_a_work_raises_is_its_callers() -> None:
    """Even a `BaseException` undoes that work alone, and goes to its caller."""

    def interrupted(tx: Transaction) -> None:
        tx.append_event(event_row("ses_x", 0))
        raise KeyboardInterrupt

    world = World()
    items = [world.item(Plan("ses_a", 1, None)), Item(work=interrupted)]
    world.run(items)
    with pytest.raises(KeyboardInterrupt):
        items[1].unwrap()
    assert items[0].unwrap() == [0]
    assert world.log() == {"ses_a": [0]}


def test_a_bug_in_the_machinery_leaves_no_transaction() -> None:
    """If the batch itself breaks, it says so and the connection is free."""
    world = World()

    def broken() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_batch(
            world.connection,
            [world.item(Plan("ses_a", 1, None))],
            now_ms=broken,
            writer_id="wrt_1",
            lock=world._lock,
            reopen=lambda: world.connection,
        )
    assert not world.connection.in_transaction
    assert world.log() == {}


def test_a_store_that_cannot_be_locked() -> None:
    """Each item gets an error of its own, and nothing runs."""
    world = World()
    world.faults.on("BEGIN IMMEDIATE", raises(apsw.ReadOnlyError("read-only")))
    items = [world.item(Plan("ses_a", 1, None)) for _ in range(3)]
    world.run(items)
    assert all(isinstance(item.error, StoreError) for item in items)
    assert len({id(item.error) for item in items}) == 3


def test_a_lost_mark_is_no_verdict() -> None:
    """A mark that is neither the old nor the new one tells nothing; who failed alone still wasn't applied."""
    world = World()
    sick = apsw.IOError("sick")

    def vanish(connection: apsw.Connection, execute: Callable[[], Any]) -> Any:
        execute()
        connection.execute("UPDATE writer_mark SET mark = 77")
        raise sick

    world.faults.on("COMMIT", vanish)
    items = [world.item(Plan("ses_a", 1, None)), world.item(Plan("ses_a", 1, "raises"))]
    world.run(items)
    assert [type(item.error) for item in items] == [CommitOutcomeUnknown, StoreIOError]
    assert all(item.error is not None and item.error.__cause__ is sick for item in items)


@pytest.mark.parametrize(
    ("exc", "expected"), [(apsw.IOError, CommitOutcomeUnknown), (apsw.FullError, StoreFull)]
)
def test_a_failed_sync_is_final_only_once_overwritten(exc: Any, expected: type[Exception]) -> None:
    """After an I/O error, "not applied" is only said once another commit has gone over what may lie there."""
    world = World()
    world.faults.on("COMMIT", raises_unapplied(exc("sick")))
    world.faults.on("COMMIT", raises_unapplied(apsw.IOError("still sick")))
    items = [world.item(Plan("ses_a", 1, None))]
    world.run(items)
    assert type(items[0].error) is expected


@pytest.mark.parametrize(
    ("exc", "still_sick", "expected"),
    [
        (apsw.IOError, True, CommitOutcomeUnknown),
        (apsw.IOError, False, type(None)),
        (apsw.FullError, True, CommitOutcomeUnknown),
        (apsw.FullError, False, type(None)),
    ],
)
def test_a_commit_found_applied_is_final_only_once_synced(
    exc: Any, still_sick: bool, expected: type[Exception]
) -> None:
    """Whatever a COMMIT failed of, what recovery found is called committed once another one is synced."""
    world = World()
    world.faults.on("COMMIT", raises_applied(exc("sick")))
    if still_sick:
        world.faults.on("COMMIT", raises_unapplied(apsw.IOError("still sick")))
    items = [world.item(Plan("ses_a", 1, None))]
    world.run(items)
    assert type(items[0].error) is expected
    assert items[0].committed == (items[0].error is None)


def test_a_reopened_connection_is_handed_back() -> None:
    """The batch says when it had to open the write connection anew, and goes on with the new one."""
    world = World()
    other = restore_memory(TEMPLATE)
    world.faults.on("COMMIT", raises_unapplied(apsw.FullError("full")))
    result = run_batch(
        world.connection,
        [world.item(Plan("ses_a", 1, None))],
        now_ms=lambda: NOW_MS,
        writer_id="wrt_1",
        lock=world._lock,
        reopen=lambda: other,
    )
    assert (result.connection, result.reopened) == (other, True)
