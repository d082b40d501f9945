"""The threaded store: shared commits, the wait for the lock, snapshots, and news of other processes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio
import trio.testing

from engine.errors import StoreBusy
from engine.store import ThreadedStore
from tests.contracts.store_cases import Faults, Recorder, append, seqs
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


# --- one hop, one commit -----------------------------------------------------------------------------


def test_what_waits_is_committed_together(path: Path, faults: Faults) -> None:
    """All writes that came while the writer was busy share one commit, in the order of arrival."""

    async def main() -> None:
        async with opened(path, faults) as store:
            hold, order, commits = Hold(), [], []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.write, hold.work)
                await hold.entered.wait()
                for n in range(40):
                    nursery.start_soon(store.write, append(f"ses_{n}"), lambda _, n=n: order.append(n))
                    await queued(store, n + 1)
                faults.on("COMMIT", lambda _, execute: commits.append(execute()), times=9)
                hold.let_go()
            assert order == list(range(40))
            assert len(commits) == 2  # the one that held, and all the others

    trio.run(main)


def test_a_batch_is_bounded(path: Path, faults: Faults) -> None:
    """No more than `batch_works_max` works share a commit."""

    async def main() -> None:
        async with opened(path, faults, batch_works_max=8) as store:
            hold, commits = Hold(), []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.write, hold.work)
                await hold.entered.wait()
                for n in range(20):
                    nursery.start_soon(store.write, append(f"ses_{n}"))
                await queued(store, 20)
                faults.on("COMMIT", lambda _, execute: commits.append(execute()), times=9)
                hold.let_go()
            assert len(commits) == 1 + 3

    trio.run(main)


# --- the lock ----------------------------------------------------------------------------------------


def test_each_caller_waits_its_own_time(path: Path) -> None:
    """The time-out for the lock counts from each one's arrival; afterwards the store goes on."""

    async def main() -> None:
        ticks, slept = threading.Semaphore(0), list[float]()

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            assert ticks.acquire(timeout=20)

        async with opened(path, sleep=sleep, write_timeout_ms=4) as store:
            other = apsw.Connection(str(path))
            other.set_busy_timeout(BUSY_MS)
            other.execute("BEGIN IMMEDIATE")
            outcomes: dict[str, Any] = {}

            async def caller(name: str) -> None:
                try:
                    outcomes[name] = await store.write(append(name))
                except StoreBusy as exc:
                    outcomes[name] = str(exc)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(caller, "ses_early")
                ticks.release(2)  # two waits of 1 ms
                while len(slept) < 3:
                    await trio.lowlevel.checkpoint()
                nursery.start_soon(caller, "ses_late")
                await queued(store, 2)
                ticks.release(1)  # and one of 2 ms: the first one's time is over
                while "ses_early" not in outcomes:
                    await trio.lowlevel.checkpoint()
                other.execute("COMMIT")
                ticks.release(50)
            other.close()
            assert outcomes == {
                "ses_early": "another process has held the write lock for 4 ms; is it stopped?",
                "ses_late": 0,
            }

    trio.run(main)


def test_two_stores_share_one_file(path: Path) -> None:
    """Two stores of one process write to one session at once: no seq is lost, doubled or skipped."""

    async def main() -> None:
        async with opened(path) as first, opened(path) as second:
            seen: list[int] = []
            stop = trio.Event()

            async def follow() -> None:
                while not (stop.is_set() and len(seen) == 200):
                    after = seen[-1] if seen else -1
                    rows = await first.read(lambda reader, after=after: reader.events("ses_a", after, 1_000))
                    seen.extend(row.seq for row in rows)

            async def write(store: ThreadedStore) -> None:
                for _ in range(20):
                    await store.write(append())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow)
                async with trio.open_nursery() as writers:
                    for store in (first, second) * 5:
                        writers.start_soon(write, store)
                stop.set()
            assert seen == list(range(200))

    trio.run(main)


# --- reads -------------------------------------------------------------------------------------------


def test_a_read_sees_one_snapshot(path: Path) -> None:
    """What is committed while a read runs isn't seen by it, and is seen by the next."""

    async def main() -> None:
        async with opened(path) as store:
            await store.write(append())

            def work(reader: Any) -> tuple[list[int], list[int]]:
                before = seqs()(reader)
                trio.from_thread.run(store.write, append())
                return before, seqs()(reader)

            assert await store.read(work) == ([0], [0])
            assert await store.read(seqs()) == [0, 1]

    trio.run(main)


def test_a_read_that_began_is_waited_for(path: Path) -> None:
    """A cancelled read returns before its cancellation arrives, and its connection serves again."""

    async def main() -> None:
        async with opened(path) as store:
            scope, go, entered = trio.CancelScope(), threading.Event(), trio.Event()
            token = trio.lowlevel.current_trio_token()
            values: list[Any] = []

            def work(reader: Any) -> str:
                token.run_sync_soon(entered.set)
                go.wait()
                return "value"

            async def reading() -> None:
                with scope:
                    values.append(await store.read(work))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(reading)
                await entered.wait()
                scope.cancel()
                await trio.testing.wait_all_tasks_blocked()
                go.set()
            assert values == ["value"]
            assert await store.read(seqs()) == []

    trio.run(main)


# --- other processes ---------------------------------------------------------------------------------


def test_commits_of_others_ring(path: Path) -> None:
    """Observers hear once that another connection has committed, and not of this store's own commits."""

    async def main() -> None:
        async with opened(path, poll_ms=1) as store:
            recorder = Recorder()
            store.observe(recorder)
            await store.write(append())
            for _ in range(3):
                await trio.to_thread.run_sync(threading.Event().wait, 0.005)
            assert recorder.notes == [("committed", ["evt_ses_a_0"])]
            other = apsw.Connection(str(path))
            other.set_busy_timeout(BUSY_MS)
            other.execute("INSERT INTO writer_mark VALUES ('other', 1)")
            other.close()
            while len(recorder.notes) == 1:
                await trio.lowlevel.checkpoint()
            await store.write(append())
            assert recorder.notes[1:] == [("changed_elsewhere",), ("committed", ["evt_ses_a_1"])]

    trio.run(main)
