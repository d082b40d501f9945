"""What becomes of callers, threads and files when the store fails or closes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio
import trio.testing

from engine.errors import CommitOutcomeUnknown, StoreClosed, StoreIOError
from engine.store import ThreadedStore, open_connection, open_store, writer
from tests.contracts.store_cases import NOW_MS, Faults, Recorder, append, raises_unapplied, seqs
from tests.engine.store_threads import Hold, opened, queued


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a new database may go."""
    return tmp_path / "store.db"


@pytest.fixture
def faults() -> Faults:
    """What the connections of `opened` ask before each statement."""
    return Faults()


# --- failure -----------------------------------------------------------------------------------------


def test_a_write_connection_that_is_lost(path: Path, faults: Faults) -> None:
    """If it can't be opened anew, writes fail and say so; as soon as it can, the store goes on."""
    sick = [False]

    def connect(*args: Any, **options: Any) -> apsw.Connection:
        if sick[0] and not options["query_only"]:
            raise StoreIOError("no such device")
        return open_connection(*args, driver=faults.driver(), **options)

    async def main() -> None:
        async with opened(path, connect=connect, poll_ms=1) as store:
            recorder = Recorder()
            await store.write(append())
            store.observe(recorder)
            sick[0] = True
            faults.on("COMMIT", raises_unapplied(apsw.IOError("sick")))
            with pytest.raises(CommitOutcomeUnknown):
                await store.write(append())
            with pytest.raises(StoreIOError, match="no such device"):
                await store.write(append())
            assert not store.health().writable
            assert await store.read(seqs()) == [0]
            sick[0] = False
            assert await store.write(append()) == 1
            assert store.health().writable
            while ("changed_elsewhere",) not in recorder.notes:  # nobody knows what was missed meanwhile
                await trio.lowlevel.checkpoint()

    trio.run(main)


def test_a_writer_that_died(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every waiter gets an error with the cause, later writes fail at once, health shows it."""
    bug = ZeroDivisionError("a bug")
    entered, go = threading.Event(), threading.Event()

    def broken(*args: Any, **options: Any) -> None:
        entered.set()
        go.wait()
        raise bug

    async def main() -> None:
        monkeypatch.setattr(writer, "run_batch", broken)
        async with opened(path) as store:
            outcomes: list[Any] = []

            async def caller() -> None:
                try:
                    await store.write(append())
                except Exception as exc:
                    outcomes.append(exc)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(caller)
                await trio.to_thread.run_sync(entered.wait)
                nursery.start_soon(caller)
                await queued(store, 1)
                go.set()
            assert {type(exc) for exc in outcomes} == {CommitOutcomeUnknown, StoreClosed}
            assert all(exc.__cause__ is bug for exc in outcomes)
            with pytest.raises(StoreClosed, match="ZeroDivisionError") as caught:
                await store.write(append())
            assert caught.value.__cause__ is bug
            health = store.health()
            assert not health.writable
            assert "ZeroDivisionError: a bug" in (health.error or "")

    trio.run(main)


# --- closing -----------------------------------------------------------------------------------------


def test_closing_finishes_what_was_taken(path: Path) -> None:
    """The write in the writer's hands is applied; the queued one, and later ones, are refused."""

    async def main() -> None:
        outcomes: dict[str, Any] = {}

        async def caller(store: ThreadedStore, name: str, work: Any) -> None:
            try:
                outcomes[name] = await store.write(work)
            except StoreClosed as exc:
                outcomes[name] = exc

        async with trio.open_nursery() as nursery:
            async with opened(path) as store:
                hold = Hold()
                nursery.start_soon(caller, store, "taken", hold.work)
                await hold.entered.wait()
                nursery.start_soon(caller, store, "queued", append())
                await queued(store, 1)
                nursery.start_soon(store.aclose)
                await trio.testing.wait_all_tasks_blocked()
                hold.let_go()
            await caller(store, "late", append())
        assert outcomes.pop("taken") == 0
        assert [type(outcome) for outcome in outcomes.values()] == [StoreClosed, StoreClosed]
        with pytest.raises(StoreClosed):
            await store.read(seqs())
        assert not store.health().writable

    trio.run(main)


def test_closing_waits_for_reads(path: Path) -> None:
    """A read that runs while the store closes still gets its value, and its connection is closed after it."""

    async def main() -> None:
        go, entered = threading.Event(), threading.Event()
        values: list[Any] = []

        def work(reader: Any) -> list[int]:
            entered.set()
            assert go.wait(20), "the test forgot this work"
            return seqs()(reader)

        async with trio.open_nursery() as nursery:
            async with opened(path) as store:

                async def reading() -> None:
                    values.append(await store.read(work))

                nursery.start_soon(reading)
                await trio.to_thread.run_sync(entered.wait)
                nursery.start_soon(store.aclose)
                await trio.testing.wait_all_tasks_blocked()
                assert _writers(), "the store closed before its read was over"
                go.set()
        assert values == [[]]
        assert store._pool._idle == []

    trio.run(main)


def _descriptors() -> list[str]:
    links: list[str] = []
    for entry in sorted(Path("/proc/self/fd").iterdir()):
        try:
            links.append(str(entry.readlink()))
        except FileNotFoundError:  # the one that lists the folder
            continue
    return [link for link in links if "store.db" in link]


def _writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "fencepost-writer"]


@pytest.fixture
def nothing_left(path: Path) -> Iterator[None]:
    """No thread, no descriptor and no file but the database itself is left after the test."""
    yield
    assert _writers() == []
    assert _descriptors() == []
    assert sorted(file.name for file in path.parent.iterdir()) == ["store.db"]
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT count(*) FROM writer_mark").fetchall() == [(0,)]
    connection.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors can't be listed here")
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("end", ["return", "raise", "cancel", "sick"])
def test_nothing_is_left_behind(path: Path, faults: Faults, end: str) -> None:
    """However the block is left, writer, readers and the files beside the database are gone."""

    async def main() -> None:
        with trio.CancelScope() as scope:
            async with opened(path, faults) as store:
                await store.write(append())
                async with trio.open_nursery() as nursery:
                    for _ in range(10):
                        nursery.start_soon(store.read, seqs())
                assert _writers()
                assert _descriptors()
                if end == "raise":
                    raise ValueError("the host's own")
                if end == "cancel":
                    scope.cancel()
                if end == "sick":
                    faults.on("COMMIT", raises_unapplied(apsw.IOError("sick")), times=2)
                    with pytest.raises(CommitOutcomeUnknown):
                        await store.write(append())

    if end == "raise":
        with pytest.raises(ValueError, match="own"):
            trio.run(main)
    else:
        trio.run(main)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors can't be listed here")
@pytest.mark.usefixtures("nothing_left")
def test_descriptors_stay_constant(path: Path, faults: Faults) -> None:
    """Cancelled, failed and good calls by the hundred open no more files than a few did."""

    async def main() -> None:
        async with opened(path, faults) as store:

            async def some(n: int) -> None:
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(store.write, append())
                        nursery.start_soon(store.read, seqs())
                        for _ in range(n % 7):
                            await trio.lowlevel.checkpoint()
                        scope.cancel()

            async with trio.open_nursery() as nursery:
                for _ in range(30):
                    nursery.start_soon(store.read, lambda reader: threading.Event().wait(0.001))
            for n in range(20):
                await some(n)
            before = len(_descriptors())
            for n in range(300):
                await some(n)
            faults.on("COMMIT", raises_unapplied(apsw.FullError("full")), times=20)
            for _ in range(20):
                with pytest.raises(Exception, match="full"):
                    await store.write(append())
            assert len(_descriptors()) == before
            assert len(_writers()) == 1

    trio.run(main)


def test_a_hop_after_the_run_is_harmless(path: Path) -> None:
    """A store whose Trio run is over reports to nobody, without an error in its thread."""
    kept: list[ThreadedStore] = []

    async def main() -> None:
        connection = open_connection(path, sleep=threading.Event().wait, timeout_ms=1_000)
        options = open_store(path, clock_now_ms=lambda: NOW_MS)._options  # type: ignore[attr-defined]
        kept.append(ThreadedStore(options, connection))

    trio.run(main)
    kept[0]._queue.close(StoreClosed("the end"))
    kept[0]._thread.join(30)
    assert not kept[0]._thread.is_alive()
