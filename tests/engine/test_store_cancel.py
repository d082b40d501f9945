"""When a write can still be withdrawn, and that nothing taken is ever abandoned."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio
import trio.testing

from engine.ports import Transaction
from engine.store import ThreadedStore
from tests.contracts.store_cases import Faults, append, seqs
from tests.engine.store_threads import Hold, opened, queued

BUSY_MS = 10_000
"""The store's own writer may hold the lock for a moment."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a new database may go."""
    return tmp_path / "store.db"


@pytest.fixture
def faults() -> Faults:
    """What the connections of `opened` ask before each statement."""
    return Faults()


def test_cancelled_before_it_was_taken(path: Path) -> None:
    """A write that is cancelled while the writer is busy with another doesn't happen."""

    async def main() -> None:
        async with opened(path) as store:
            hold, scope = Hold(), trio.CancelScope()

            async def withdrawn() -> None:
                with scope:
                    await store.write(append())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.write, hold.work)
                await hold.entered.wait()
                nursery.start_soon(withdrawn)
                await queued(store, 1)
                scope.cancel()
                await trio.testing.wait_all_tasks_blocked()
                assert scope.cancelled_caught
                assert store.health().queued == 0
                hold.let_go()
            assert await store.read(seqs()) == []

    trio.run(main)


def test_cancelled_before_it_was_queued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that is cancelled already never gets as far as the queue."""

    async def main() -> None:
        async with opened(path) as store:
            with monkeypatch.context() as patch, trio.CancelScope() as scope:
                patch.setattr(store._queue, "put", lambda ticket: pytest.fail("it was queued"))
                scope.cancel()
                await store.write(append())
            assert scope.cancelled_caught

    trio.run(main)


def test_cancelled_after_it_was_taken(path: Path) -> None:
    """The caller gets its value; the cancellation arrives at its next checkpoint and isn't lost."""

    async def main() -> None:
        async with opened(path) as store:
            hold, scope = Hold(), trio.CancelScope()
            memory: list[int] = []
            reached: list[Any] = []

            async def taken() -> None:
                with scope:
                    reached.append(await store.write(hold.work, memory.append))
                    reached.append("synchronous code goes on")
                    await trio.lowlevel.checkpoint()
                    reached.append("never")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(taken)
                await hold.entered.wait()
                scope.cancel()
                await trio.testing.wait_all_tasks_blocked()
                assert not scope.cancelled_caught
                hold.let_go()
            assert scope.cancelled_caught
            assert (reached, memory) == ([0, "synchronous code goes on"], [0])
            assert await store.read(seqs("ses_held")) == [0]

    trio.run(main)


def test_withdrawn_while_another_process_holds_the_lock(path: Path) -> None:
    """Works are taken once the lock is held, so a caller that waits for it can still be cancelled."""

    async def main() -> None:
        async with opened(path) as store:
            other = apsw.Connection(str(path))
            other.set_busy_timeout(BUSY_MS)
            other.execute("BEGIN IMMEDIATE")
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(store.write, append())
                    await queued(store, 1)
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
            assert scope.cancelled_caught
            other.execute("COMMIT")
            other.close()
            assert await store.read(seqs()) == []
            assert await store.write(append()) == 0

    trio.run(main)


@trio.lowlevel.enable_ki_protection
def _interrupt_main_task() -> None:
    """SIGINT that lands in protected code, so that Trio keeps it for the main task."""
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_after_it_was_taken(path: Path) -> None:
    """A KeyboardInterrupt in the main task waits for the outcome, and comes right after it."""
    memory: list[int] = []
    reached: list[int] = []

    async def main() -> None:
        async with opened(path) as store:
            hold = Hold()

            async def interrupt() -> None:
                await hold.entered.wait()
                _interrupt_main_task()
                await trio.testing.wait_all_tasks_blocked()
                hold.let_go()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(interrupt)
                reached.append(await store.write(hold.work, memory.append))
                await trio.lowlevel.checkpoint()
                reached.append(-1)

    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(main)
    assert caught.value.subgroup(KeyboardInterrupt) is not None
    assert (reached, memory) == ([0], [0])


async def _one_strike(store: ThreadedStore, place: str, passes: int, memory: list[int]) -> int | None:
    """A write during which SIGINT comes; the value, if there was one. Raises what came of it."""
    value: int | None = None

    def work(tx: Transaction) -> int:
        if place == "work":
            signal.raise_signal(signal.SIGINT)
        return append()(tx)

    def after_commit(seq: int) -> None:
        if place == "after_commit":
            signal.raise_signal(signal.SIGINT)
        memory.append(seq)

    async def strike() -> None:
        for _ in range(passes):
            await trio.lowlevel.checkpoint()
        if place == "task":
            _interrupt_main_task()

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(strike)
            value = await store.write(work, after_commit)
            await trio.sleep_forever()
    except* KeyboardInterrupt:
        pass
    return value


@pytest.mark.parametrize("place", ["task", "work", "after_commit"])
def test_a_storm_of_interrupts(path: Path, place: str) -> None:
    """Wherever SIGINT falls, database and memory agree, what was reported is there, and the store goes on."""
    memory: list[int] = []
    values: list[int | None] = []

    async def main() -> None:
        async with opened(path) as store:
            for n in range(60):
                values.append(await _one_strike(store, place, n % 12, memory))
                assert await store.read(seqs()) == memory
                assert values[-1] is None or values[-1] == memory[-1]

    trio.run(main)
    assert any(value is not None for value in values)
