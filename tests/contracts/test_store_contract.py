"""The contract of `engine.ports.Store`, the same for every implementation."""

from __future__ import annotations

import contextlib
from typing import Any

import apsw
import pytest
import trio
import trio.testing

from engine.errors import (
    AfterCommitFailed,
    ClaimLost,
    ConstraintBroken,
    StoreError,
    StoreFull,
    StoreInterrupted,
)
from engine.ports import Reader, Transaction
from tests.contracts.store_cases import (
    OpenStore,
    Recorder,
    StoreUnderTest,
    all_at_once,
    append,
    event_row,
    run,
    seqs,
    session_row,
    stored,
)

# --- success -----------------------------------------------------------------------------------------


def test_write_returns_the_value_of_its_work(open_under_test: OpenStore) -> None:
    """A write returns what its work returned, and a read sees what it wrote."""

    async def case(sut: StoreUnderTest) -> None:
        assert [await sut.store.write(append()) for _ in range(3)] == [0, 1, 2]
        assert await sut.store.read(seqs()) == [0, 1, 2]

    run(open_under_test, case)


def test_order_within_a_hop(open_under_test: OpenStore) -> None:
    """`after_commit` runs with the value before observers are told, and both before the caller goes on."""

    async def case(sut: StoreUnderTest) -> None:
        recorder = Recorder()
        sut.store.observe(recorder)
        await sut.store.write(append(), lambda value: recorder.notes.append(("after_commit", value)))
        recorder.notes.append("caller")
        assert recorder.notes == [("after_commit", 0), ("committed", ["evt_ses_a_0"]), "caller"]

    run(open_under_test, case)


def test_hops_follow_the_order_of_commits(open_under_test: OpenStore) -> None:
    """Over many writers at once, memory and observers see the commits in the order of the log."""

    async def case(sut: StoreUnderTest) -> None:
        recorder, memory = Recorder(), []
        sut.store.observe(recorder)
        async with trio.open_nursery() as nursery:
            for _ in range(60):
                nursery.start_soon(sut.store.write, append(), memory.append)
        assert memory == list(range(60))
        assert recorder.notes == [("committed", [f"evt_ses_a_{seq}"]) for seq in range(60)]

    run(open_under_test, case)


def test_observers_hear_only_of_works_that_tell(open_under_test: OpenStore) -> None:
    """A work that told nothing is committed without a word to the observers."""

    async def case(sut: StoreUnderTest) -> None:
        recorder = Recorder()
        sut.store.observe(recorder)
        await sut.store.write(lambda tx: tx.append_event(event_row()))
        assert recorder.notes == []

    run(open_under_test, case)


def test_now_is_read_once_per_work(open_under_test: OpenStore) -> None:
    """A work sees one `now_ms`, however often it looks, and the next work a later one."""
    readings = iter(range(1_000, 2_000))

    async def main() -> None:
        async with open_under_test(now_ms=lambda: next(readings)) as sut:
            first, second = [await sut.store.write(lambda tx: (tx.now_ms, tx.now_ms)) for _ in range(2)]
            assert (first, second) == ((1_000, 1_000), (1_001, 1_001))

    trio.run(main)


# --- errors of one work ------------------------------------------------------------------------------


def test_an_error_undoes_its_work_alone(open_under_test: OpenStore) -> None:
    """What a work raises reaches its caller as it is, and nothing of that work stays."""

    async def case(sut: StoreUnderTest) -> None:
        lost = ClaimLost("exe_1 lost")

        def failing(tx: Transaction) -> None:
            tx.append_event(event_row("ses_b", 0))
            tx.tell(stored("ses_b", 0))
            raise lost

        recorder = Recorder()
        sut.store.observe(recorder)
        outcomes = await all_at_once(sut, [append("ses_a"), failing, append("ses_c")])
        assert outcomes == [0, lost, 0]
        assert await sut.store.read(seqs("ses_b")) == []
        assert sorted(recorder.notes) == [("committed", ["evt_ses_a_0"]), ("committed", ["evt_ses_c_0"])]
        assert sut.store.health().error is None

    run(open_under_test, case)


def test_a_refused_row_can_be_caught(open_under_test: OpenStore) -> None:
    """A duplicate is `ConstraintBroken` inside the work, which may catch it and go on."""

    async def case(sut: StoreUnderTest) -> None:
        await sut.store.write(append())

        def work(tx: Transaction) -> int:
            with pytest.raises(ConstraintBroken):
                tx.append_event(event_row(seq=0))
            return append()(tx)

        assert await sut.store.write(work) == 1
        with pytest.raises(ConstraintBroken) as caught:
            await sut.store.write(lambda tx: tx.append_event(event_row(seq=0)))
        assert isinstance(caught.value.__cause__, apsw.ConstraintError)
        assert await sut.store.read(seqs()) == [0, 1]

    run(open_under_test, case)


def test_a_transaction_ends_with_its_work(open_under_test: OpenStore) -> None:
    """A transaction or reader that was kept refuses to be used, and changes nothing."""

    async def case(sut: StoreUnderTest) -> None:
        kept: list[Any] = []
        await sut.store.write(kept.append)
        await sut.store.read(kept.append)
        with pytest.raises(StoreError):
            kept[0].append_event(event_row())
        with pytest.raises(StoreError):
            kept[1].latest_seq("ses_a")
        assert await sut.store.read(seqs()) == []

    run(open_under_test, case)


@pytest.mark.parametrize("extra", [0, 3])
@pytest.mark.parametrize(("fault", "expected"), [("full_disk", StoreFull), ("interrupted", StoreInterrupted)])
def test_an_error_that_ends_the_transaction(
    open_under_test: OpenStore, fault: str, expected: type[StoreError], extra: int
) -> None:
    """The culprit gets the error, and works before and after it in its batch are applied once each."""

    async def case(sut: StoreUnderTest) -> None:
        def culprit(tx: Transaction) -> None:
            tx.append_event(event_row("ses_x", 0))
            with getattr(sut.faults, fault)():
                tx.put_session(session_row("ses_x", title="x" * 1_000_000))

        works = [append(f"ses_{n}") for n in range(5)]
        culprits = [culprit] * (1 + extra)
        outcomes = await all_at_once(sut, [*works[:2], *culprits, *works[2:]])
        good = outcomes[:2] + outcomes[-3:]
        assert good == [0] * 5
        assert all(isinstance(outcome, expected) for outcome in outcomes[2:-3])
        assert len({id(outcome) for outcome in outcomes[2:-3]}) == 1 + extra
        for n in range(5):
            assert await sut.store.read(seqs(f"ses_{n}")) == [0]
        assert await sut.store.read(seqs("ses_x")) == []
        assert await sut.store.write(append("ses_x")) == 0

    run(open_under_test, case)


def test_more_culprits_than_reruns(open_under_test: OpenStore) -> None:
    """However many works of a batch end its transaction, the innocent ones are applied."""

    async def case(sut: StoreUnderTest) -> None:
        def culprit(tx: Transaction) -> None:
            with sut.faults.interrupted():
                tx.append_event(event_row("ses_x", 0))

        works = [append(f"ses_{n}") if n % 2 else culprit for n in range(30)]
        outcomes = await all_at_once(sut, works)
        assert [o for o in outcomes if not isinstance(o, StoreInterrupted)] == [0] * 15
        assert [await sut.store.read(seqs(f"ses_{n}")) for n in range(1, 30, 2)] == [[0]] * 15

    run(open_under_test, case)


def test_nothing_is_written_past_an_ended_transaction(open_under_test: OpenStore) -> None:
    """A work that catches the error which ended its transaction, and writes on, writes nothing."""

    async def case(sut: StoreUnderTest) -> None:
        def stubborn(tx: Transaction) -> str:
            with contextlib.suppress(StoreInterrupted), sut.faults.interrupted():
                tx.append_event(event_row("ses_x", 0))
            with contextlib.suppress(StoreInterrupted):
                tx.append_event(event_row("ses_x", 0))
            return "done"

        outcomes = await all_at_once(sut, [append("ses_a"), stubborn, append("ses_b")])
        assert isinstance(outcomes[1], StoreInterrupted)
        assert outcomes[::2] == [0, 0]
        assert await sut.store.read(seqs("ses_x")) == []

    run(open_under_test, case)


# --- memory ------------------------------------------------------------------------------------------


def test_an_after_commit_that_raises(open_under_test: OpenStore) -> None:
    """Its caller gets `AfterCommitFailed`; the write is applied and announced, and others are untouched."""

    async def case(sut: StoreUnderTest) -> None:
        recorder, bug = Recorder(), ValueError("a bug")
        sut.store.observe(recorder)

        def broken(_: int) -> None:
            raise bug

        with pytest.raises(AfterCommitFailed, match=r"publish .*applied") as caught:
            await sut.store.write(append(), broken, label="publish")
        assert caught.value.__cause__ is bug
        assert recorder.notes == [("committed", ["evt_ses_a_0"])]
        assert await sut.store.read(seqs()) == [0]
        assert await sut.store.write(append()) == 1

    run(open_under_test, case)


def test_an_observer_that_raises(open_under_test: OpenStore) -> None:
    """Neither the caller nor another observer suffers from an observer's bug."""

    class Broken(Recorder):
        def committed(self, stored: Any) -> None:
            raise ValueError("a bug")

    async def case(sut: StoreUnderTest) -> None:
        recorder = Recorder()
        sut.store.observe(Broken())
        sut.store.observe(recorder)
        assert await sut.store.write(append()) == 0
        assert recorder.notes == [("committed", ["evt_ses_a_0"])]

    run(open_under_test, case)


@pytest.mark.parametrize("passes", [0, 1, 2, 5])
def test_cancelled_writes_happen_or_do_not(open_under_test: OpenStore, passes: int) -> None:
    """Wherever a cancellation falls: a value means applied, `Cancelled` means not, and memory agrees."""

    async def case(sut: StoreUnderTest) -> None:
        memory: list[int] = []
        reported: list[int] = []

        async def one(scope: trio.CancelScope) -> None:
            with scope:
                reported.append(await sut.store.write(append(), memory.append))

        for _ in range(25):
            scopes = [trio.CancelScope() for _ in range(4)]
            async with trio.open_nursery() as nursery:
                for scope in scopes:
                    nursery.start_soon(one, scope)
                for _ in range(passes):
                    await trio.lowlevel.checkpoint()
                for scope in scopes[::2]:
                    scope.cancel()
        assert await sut.store.read(seqs()) == memory == sorted(reported)

    run(open_under_test, case)


# --- reads -------------------------------------------------------------------------------------------


def test_a_read_raises_what_its_work_raises(open_under_test: OpenStore) -> None:
    """A read's error reaches its caller, and the next read works."""

    async def case(sut: StoreUnderTest) -> None:
        def failing(reader: Reader) -> None:
            raise ClaimLost("lost")

        for _ in range(10):
            with pytest.raises(ClaimLost):
                await sut.store.read(failing)
        assert await sut.store.read(seqs()) == []

    run(open_under_test, case)


def test_every_port_call_is_a_checkpoint(open_under_test: OpenStore) -> None:
    """Reading and writing let others run and notice a cancellation, before anything is done."""

    async def case(sut: StoreUnderTest) -> None:
        for call in (lambda: sut.store.write(append()), lambda: sut.store.read(seqs())):
            with trio.CancelScope() as scope:
                scope.cancel()
                await call()
            assert scope.cancelled_caught
        with trio.testing.assert_checkpoints():
            await sut.store.write(append("ses_b"))
        with trio.testing.assert_checkpoints():
            assert await sut.store.read(seqs()) == []

    run(open_under_test, case)
