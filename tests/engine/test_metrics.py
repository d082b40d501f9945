"""Counters and health: what a node says of itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import trio

from engine.errors import EngineClosed, StoreClosed, StoreError
from engine.events import Stored
from engine.metrics import Metrics
from engine.providers.script import Finish, Stall, reply, says
from engine.providers.scripted import ScriptedProvider
from engine.records import InterruptAnswer
from engine.testing import World, crash, open_test_engine, run_test
from tests.engine.real import CONFIG, FAIL_SAFE_S, Model, engine_on, lock_of, types_in


class Observer:
    """Adds up what it is told, as an exporter would."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def count(self, name: str, amount: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + amount


def stalling(world: World) -> ScriptedProvider:
    return ScriptedProvider(world.clock, [reply(Stall(stall_ms=60_000), Finish()), says("Done.")])


# --- counters ----------------------------------------------------------------------------------------


def test_events_are_counted_where_they_are_committed() -> None:
    """Each node counts the events that it commits itself, by type, whoever else commits to the session; the
    observer is told of every count."""

    async def main() -> None:
        world, told = World(), Observer()
        async with (
            open_test_engine(world=world, metrics=told) as engine,
            open_test_engine(world=world) as other,
        ):
            session = await engine.create_session()
            await session.run("hello")
            await other.run(session.id, "hello")
            for _ in range(2):
                await engine.wait_idle()
                await other.wait_idle()
            ours, theirs = engine.metrics().events, other.metrics().events
            in_log = await types_in(engine, session.id)
            assert {name: ours.get(name, 0) + theirs.get(name, 0) for name in {*ours, *theirs}} == {
                name: in_log.count(name) for name in in_log
            }
            assert (ours["session.created"], "session.created" in theirs) == (1, False)
            assert list(ours) == sorted(ours)
            assert told.counts == dict(ours)

    run_test(main)


def test_interrupts_failures_and_losses_are_counted_apart() -> None:
    """Interrupts that were asked for, listeners that failed or hung, and claims that were lost each have a
    counter, which is no event."""

    async def main() -> None:
        world, told = World(), Observer()

        async def listen(stored: Stored) -> None:
            if stored.type == "session.created":
                raise OSError("broken")
            if stored.type == "step.started":
                await trio.sleep(3_000)

        async with open_test_engine(
            world=world, provider=stalling(world), listeners=[listen], metrics=told, check=False
        ) as engine:
            session = await engine.create_session()
            await session.send("hello")
            await trio.sleep(30)
            assert engine.metrics().listener_failures == 2
            assert engine.metrics().sessions_active == 1
            assert await session.interrupt() is InterruptAnswer.SETTLED
            assert await session.interrupt() is InterruptAnswer.NOT_RUNNING
            await session.send("again")
            await trio.sleep(1)
            world.database.connection.execute("UPDATE execution_claim SET execution_id = 'exe_other'")
            await trio.sleep(15)
            found = engine.metrics()
            assert (found.interrupts, found.claims_lost) == (2, 1)
            assert not {"interrupts", "claims_lost", "listener_failures"} & {*found.events}
            assert [told.counts[name] for name in ("interrupts", "claims_lost")] == [2, 1]

    run_test(main)


def test_a_snapshot_is_of_its_moment() -> None:
    """A snapshot doesn't change afterwards; a counter nobody counted is 0."""
    metrics = Metrics()
    metrics.count("step.started")
    before = metrics.snapshot(active=1, queued=2)
    metrics.count("step.started", 2)
    metrics.count(Metrics.INTERRUPTS)
    assert (before.events, before.interrupts, before.claims_lost) == ({"step.started": 1}, 0, 0)
    assert (before.sessions_active, before.writes_queued) == (1, 2)
    assert metrics.snapshot(active=0, queued=0).events == {"step.started": 3}


# --- health ------------------------------------------------------------------------------------------


def test_a_node_that_is_well_says_so_until_it_closes() -> None:
    """A healthy engine has no problem to report, one whose database is gone or that is closing has."""

    async def main() -> None:
        async with open_test_engine(check=False) as engine:
            assert (engine.health().ok, engine.health().problems, engine.health().closing) == (
                True,
                [],
                False,
            )
            crash(engine)
            (problem,) = engine.health().problems
            assert problem == "the store failed: StoreClosed: the store is closed"
            with pytest.raises(StoreClosed):
                await engine.create_session()
        assert engine.health().problems[-1] == "the engine is closing"
        assert engine.health().closing
        with pytest.raises(EngineClosed):
            await engine.create_session()

    run_test(main)


@pytest.mark.trio
async def test_a_busy_file_shows_and_heals(tmp_path: Path) -> None:
    """While somebody else keeps the file locked past `write_timeout_ms`, writes fail by name and the node is
    not well; the first good write heals it, and nothing was applied meanwhile."""
    path = tmp_path / "busy.db"
    config = attrs.evolve(CONFIG, write_timeout_ms=50)
    async with engine_on(path, Model(), config=config) as engine:
        session = await engine.create_session()
        other = lock_of(path)
        with pytest.raises(StoreError, match="lock"):
            await session.send("hello", input_id="inp_1")
        assert not engine.health().ok
        assert "StoreBusy" in engine.health().problems[0]
        assert engine.metrics().events == {"session.created": 1}
        other.close()
        assert (await session.send("hello", input_id="inp_1")).created
        assert engine.health().ok
        await session.wait_turn("inp_1")


@pytest.mark.trio
async def test_queued_writes_are_told(tmp_path: Path) -> None:
    """Writes that wait for the file's lock are counted until they are through."""
    path = tmp_path / "queued.db"
    async with engine_on(path, Model()) as engine:
        sessions = [await engine.create_session() for _ in range(3)]
        other = lock_of(path)
        async with trio.open_nursery() as nursery:
            for session in sessions:
                nursery.start_soon(session.send, "hello")
            await _until(lambda: engine.metrics().writes_queued == 3)
            assert engine.health().store.queued == 3
            other.close()
        assert engine.metrics().events["input.admitted"] == 3
        await engine.wait_idle()
        assert engine.metrics().writes_queued == 0


async def _until(check: Callable[[], bool]) -> None:
    with trio.fail_after(FAIL_SAFE_S):
        while not check():
            await trio.lowlevel.checkpoint()
