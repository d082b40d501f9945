"""The contract of `engine.ports.Store` when a COMMIT, a lock or a rollback fails."""

from __future__ import annotations

from typing import Any

import apsw
import pytest

from engine.errors import (
    ClaimLost,
    CommitOutcomeUnknown,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreIOError,
)
from engine.ports import Transaction
from engine.store.queries import QUERIES
from tests.contracts.store_cases import (
    OpenStore,
    Recorder,
    StoreUnderTest,
    all_at_once,
    append,
    event_row,
    raises,
    raises_applied,
    raises_unapplied,
    run,
    seqs,
)

BIG = b"x" * 1_000_000


async def _write_with_faulty_commit(sut: StoreUnderTest, action: Any, times: int = 1) -> tuple[Any, Recorder]:
    await sut.store.write(append("ses_z"))
    recorder = Recorder()
    sut.store.observe(recorder)
    sut.faults.on("COMMIT", action, times)
    try:
        outcome: Any = await sut.store.write(append(), lambda seq: recorder.notes.append(("after", seq)))
    except Exception as exc:
        outcome = exc
    return outcome, recorder


@pytest.mark.parametrize("action", [raises, raises_unapplied])
@pytest.mark.parametrize(("exc", "expected"), [(apsw.IOError, StoreIOError), (apsw.FullError, StoreFull)])
def test_a_commit_that_was_not_applied(
    open_under_test: OpenStore, action: Any, exc: Any, expected: type[StoreError]
) -> None:
    """The caller gets the driver's error as the cause, nobody hears of it, and the next write works."""

    async def case(sut: StoreUnderTest) -> None:
        original = exc("sick disk")
        outcome, recorder = await _write_with_faulty_commit(sut, action(original))
        assert type(outcome) is expected
        assert outcome.__cause__ is original
        assert recorder.notes == []
        assert "sick disk" in (sut.store.health().error or "")
        assert await sut.store.read(seqs()) == []
        assert await sut.store.write(append()) == 0
        assert sut.store.health().error is None

    run(open_under_test, case)


def test_a_commit_that_raised_and_was_applied(open_under_test: OpenStore) -> None:
    """The mark tells that it was applied, so it is a success like any other."""

    async def case(sut: StoreUnderTest) -> None:
        outcome, recorder = await _write_with_faulty_commit(sut, raises_applied(apsw.IOError("sick disk")))
        assert outcome == 0
        assert recorder.notes == [("after", 0), ("committed", ["evt_ses_a_0"])]
        assert await sut.store.write(append()) == 1

    run(open_under_test, case)


@pytest.mark.parametrize("action", [raises_applied, raises_unapplied])
def test_a_commit_whose_outcome_cannot_be_told(open_under_test: OpenStore, action: Any) -> None:
    """If the mark can't be read either, the caller is told just that, and the store goes on."""

    async def case(sut: StoreUnderTest) -> None:
        sick = apsw.IOError("sick disk")
        sut.faults.on(QUERIES["writer_mark"], lambda _, execute: execute(), times=2)
        sut.faults.on(QUERIES["writer_mark"], raises(sick))
        outcome, recorder = await _write_with_faulty_commit(sut, action(sick))
        assert type(outcome) is CommitOutcomeUnknown
        assert outcome.__cause__ is sick
        assert recorder.notes == []
        assert await sut.store.write(append()) == (1 if action is raises_applied else 0)

    run(open_under_test, case)


def test_a_work_that_failed_beside_a_lost_commit(open_under_test: OpenStore) -> None:
    """A work's own error counts only if what it saw was committed: else it shares the batch's error."""

    async def case(sut: StoreUnderTest) -> None:
        def acquire(tx: Transaction) -> None:
            if tx.generation("ses_a"):
                raise ClaimLost("somebody has it")
            tx.put_generation("ses_a", 1)

        await sut.store.write(append("ses_z"))
        sut.faults.on("COMMIT", raises_unapplied(apsw.FullError("full")), times=2)
        outcomes = await all_at_once(sut, [acquire, acquire])
        assert [type(outcome) for outcome in outcomes] == [StoreFull, StoreFull]

    run(open_under_test, case)


def test_a_busy_commit_is_tried_again(open_under_test: OpenStore) -> None:
    """A COMMIT that is refused for a lock runs again with all its works, and is applied once."""

    async def case(sut: StoreUnderTest) -> None:
        outcome, recorder = await _write_with_faulty_commit(sut, raises(apsw.BusyError("locked")), times=2)
        assert outcome == 0
        assert recorder.notes == [("after", 0), ("committed", ["evt_ses_a_0"])]
        assert await sut.store.read(seqs()) == [0]

    run(open_under_test, case)


def test_a_commit_that_stays_busy(open_under_test: OpenStore) -> None:
    """The tries are bounded: then the caller gets `StoreBusy`, with nothing applied."""

    async def case(sut: StoreUnderTest) -> None:
        outcome, _ = await _write_with_faulty_commit(sut, raises(apsw.BusyError("locked")), times=50)
        assert type(outcome) is StoreBusy
        sut.faults.actions.clear()
        assert await sut.store.read(seqs()) == []
        assert await sut.store.write(append()) == 0

    run(open_under_test, case)


def test_a_lock_that_cannot_be_had(open_under_test: OpenStore) -> None:
    """Waiting for the write lock ends in `StoreBusy` that names the condition, with nothing applied."""

    async def case(sut: StoreUnderTest) -> None:
        sut.faults.on("BEGIN IMMEDIATE", raises(apsw.BusyError("locked")), times=1_000)
        with pytest.raises(StoreBusy, match=r"another process has held the write lock for .* stopped"):
            await sut.store.write(append())
        assert "StoreBusy" in (sut.store.health().error or "")
        sut.faults.actions.clear()
        assert await sut.store.write(append()) == 0

    run(open_under_test, case)


def test_a_failing_rollback_hides_nothing(open_under_test: OpenStore) -> None:
    """If even ROLLBACK fails, the caller still gets the first error, and the store recovers."""

    async def case(sut: StoreUnderTest) -> None:
        original = apsw.FullError("disk full")
        sut.faults.on("ROLLBACK", raises(apsw.SQLError("cannot rollback")))
        outcome, _ = await _write_with_faulty_commit(sut, raises(original))
        assert type(outcome) is StoreFull
        assert outcome.__cause__ is original
        assert await sut.store.read(seqs()) == []
        assert await sut.store.write(append()) == 0

    run(open_under_test, case)


def test_a_savepoint_that_cannot_be_undone(open_under_test: OpenStore) -> None:
    """If a work's own rollback fails, the whole transaction goes: it alone fails, the others are applied."""

    async def case(sut: StoreUnderTest) -> None:
        lost = ClaimLost("lost")

        def failing(tx: Transaction) -> None:
            tx.append_event(event_row("ses_x", 0))
            raise lost

        sut.faults.on("ROLLBACK TO work", raises(apsw.FullError("disk full")))
        outcomes = await all_at_once(sut, [append("ses_a"), failing, append("ses_b")])
        assert outcomes == [0, lost, 0]
        assert await sut.store.read(seqs("ses_x")) == []
        assert await sut.store.read(seqs("ses_a")) == [0]

    run(open_under_test, case)
