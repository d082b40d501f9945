"""The coordinator: one slot per busy session, a fair start order, and faults that stay with their session."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from engine import coordinator
from engine.acquiring import acquire
from engine.api import Engine
from engine.endings import HandedOver, Succeeded
from engine.errors import SessionNotFound, StoreIOError
from engine.events import ExecutionStarted, Stored
from engine.limits import EngineConfig
from engine.ports import ProviderEvent
from engine.providers.script import Finish, Stall, reply, says
from engine.providers.scripted import ScriptedProvider
from engine.records import Request
from engine.testing import World, open_test_engine, run_test, verify
from tests.engine.real import Model, assert_clean, engine_on, stored_in, types_in, until

DAY_S = 86_400.0
NO_SWEEP = EngineConfig(sweep_interval_ms=24 * 3_600_000)


class Slow(ScriptedProvider):
    """A model that takes its time for each answer, and notes who asked, and how many at once."""

    def __init__(self, world: World, seconds: float = 1.0) -> None:
        super().__init__(world.clock, [says("Done.")])
        self._seconds = seconds
        self.asked: list[str] = []
        self.now = self.most = 0

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        self.asked.append(request.session_id)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await trio.sleep(self._seconds)
            async with super().open(request) as events:
                yield events
        finally:
            self.now -= 1


# --- a fair start order ------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3])
def test_sessions_start_in_the_order_of_their_rings(most: int) -> None:
    """At most `sessions_running_max` sessions run at once, and those that wait start first come, first
    served."""

    async def main() -> None:
        world = World()
        model = Slow(world)
        config = EngineConfig(sessions_running_max=most)
        async with open_test_engine(world=world, provider=model, config=config) as engine:
            names = [f"ses_{number}" for number in (5, 1, 8, 0, 3, 9, 2, 7, 4, 6)]
            for name in names:
                await engine.create_session(session_id=name)
            for name in names:
                await engine.send(name, "hello")
            await engine.wait_idle()
            assert model.most == most
            # those that are let in at one moment ask in any order
            rounds = [sorted(model.asked[at : at + most]) for at in range(0, len(names), most)]
            assert rounds == [sorted(names[at : at + most]) for at in range(0, len(names), most)]

    run_test(main)


def test_a_session_that_is_ready_again_queues_behind_those_that_wait() -> None:
    """Input for a session that just ended doesn't let it overtake sessions that have waited for longer."""

    async def main() -> None:
        world, here = World(), list[Engine]()

        async def more(stored: Stored) -> None:
            again = model.asked.count("ses_busy") < 3
            if again and (stored.type, stored.event.session_id) == ("execution.succeeded", "ses_busy"):
                await here[0].send("ses_busy", "more")

        model = Slow(world)
        config = EngineConfig(sessions_running_max=1)
        async with open_test_engine(world=world, provider=model, config=config, listeners=[more]) as engine:
            here.append(engine)
            for name in ("ses_busy", "ses_a", "ses_b"):
                await engine.create_session(session_id=name)
            for name in ("ses_busy", "ses_a", "ses_b"):
                await engine.send(name, "hello")
            await engine.wait_idle()
            assert model.asked == ["ses_busy", "ses_a", "ses_b", "ses_busy", "ses_busy"]

    run_test(main)


def test_a_waiting_session_holds_no_claim() -> None:
    """Who waits for its start hasn't claimed anything yet, so another node may run it meanwhile."""

    async def main() -> None:
        world = World()
        busy = ScriptedProvider(world.clock, [reply(Stall(stall_ms=30_000), Finish())])
        config = EngineConfig(sessions_running_max=1)
        async with open_test_engine(world=world, provider=busy, config=config) as engine:
            for name in ("ses_a", "ses_b"):
                await engine.create_session(session_id=name)
                await engine.send(name, "hello", input_id=f"inp_{name}")
            await trio.sleep(1)
            assert [row.session_id for row in world.database.read(lambda tx: tx.claims("", 9))] == ["ses_a"]
            async with open_test_engine(world=world, config=config) as other:
                turn = await other.wait_turn("ses_b", "inp_ses_b")
                assert (turn.how, world.clock.monotonic() < 29) == ("succeeded", True)
            await engine.wait_idle()
            assert (await types_in(engine, "ses_b")).count("execution.started") == 1

    run_test(main)


# --- ringing -----------------------------------------------------------------------------------------


def test_many_rings_during_a_run_cause_one_more_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a busy session is rung, it is looked at once more when it is done, and then rests."""
    looks: list[str] = []

    async def counted(node: Any, session_id: str, *rest: Any) -> bool:
        looks.append(session_id)
        return await acquire(node, session_id, *rest)

    monkeypatch.setattr(coordinator, "acquire", counted)

    async def main() -> None:
        world = World()
        async with open_test_engine(world=world, provider=Slow(world), config=NO_SWEEP) as engine:
            session = await engine.create_session()
            await session.send("hello")
            await trio.sleep(0.5)
            slots = [engine.coordinator.wake(session.id) for _ in range(50)]
            assert len({id(slot) for slot in slots}) == 1
            await engine.wait_idle()
            assert looks == [session.id] * 2
            assert engine.coordinator.active() == ()
            assert await engine.execute(session.id) is None
            assert looks == [session.id] * 3

    run_test(main)


def test_after_a_shutdown_nothing_starts() -> None:
    """A ring during the shutdown is answered with nothing, and a session that waited for its start isn't
    claimed any more."""

    async def main() -> None:
        world, endings = World(), list[object]()
        config = EngineConfig(sessions_running_max=1)
        busy = ScriptedProvider(world.clock, [reply(Stall(stall_ms=600_000), Finish())])
        async with open_test_engine(world=world, provider=busy, config=config, check=False) as engine:
            for name in ("ses_a", "ses_b"):
                await engine.create_session(session_id=name)
                await engine.send(name, "hello")
            await trio.sleep(1)

            async def join(name: str) -> None:
                endings.append((name, await engine.coordinator.run(name)))

            async with trio.open_nursery() as nursery:
                for name in ("ses_a", "ses_b"):
                    nursery.start_soon(join, name)
                await trio.sleep(1)
                nursery.start_soon(engine.close)
                await trio.sleep(1)
                assert engine.coordinator.wake("ses_c") is None
                assert await engine.coordinator.run("ses_c") is None
            assert sorted(endings, key=str) == [("ses_a", HandedOver()), ("ses_b", None)]
        kinds = {name: [each.kind for each in found.pending] for name, found in verify(world).items()}
        assert kinds == {"ses_a": ["claim"], "ses_b": ["input"]}

    run_test(main)


def test_wait_idle_waits_for_one_or_for_all() -> None:
    """`wait_idle` of a session returns when that one rests, `wait_idle` of the node when all do."""

    async def main() -> None:
        world, done = World(), list[tuple[str | None, float]]()
        async with open_test_engine(world=world, provider=Slow(world, seconds=5)) as engine:
            for name, come_s in (("ses_a", 0), ("ses_b", 3)):
                await trio.sleep(come_s)
                await engine.create_session(session_id=name)
                await engine.send(name, "hello")
            began = world.clock.monotonic()

            async def wait(name: str | None) -> None:
                await engine.wait_idle(name)
                done.append((name, round(world.clock.monotonic() - began)))

            async with trio.open_nursery() as nursery:
                for name in (None, "ses_b", "ses_a", "ses_idle"):
                    nursery.start_soon(wait, name)
            assert dict(done) == {"ses_idle": 0, "ses_a": 2, "ses_b": 5, None: 5}

    run_test(main)


# --- faults stay their session's own -----------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError("a bug"), StoreIOError("a bad disk")], ids=["bug", "store"])
def test_a_slot_that_fails_hurts_no_other(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """What claiming one session raises reaches who asked for that one; the others run, and the next ring
    tries again."""
    broken = ["ses_bad"]

    async def failing(node: Any, session_id: str, *rest: Any) -> bool:
        if session_id in broken:
            raise error
        return await acquire(node, session_id, *rest)

    monkeypatch.setattr(coordinator, "acquire", failing)

    async def main() -> None:
        async with open_test_engine(config=NO_SWEEP) as engine:
            for name in ("ses_bad", "ses_good"):
                await engine.create_session(session_id=name)
            await engine.send("ses_bad", "hello", input_id="inp_bad")
            with pytest.raises(type(error), match=str(error)):
                await engine.execute("ses_bad")
            assert (await engine.run("ses_good", "hello")).how == "succeeded"
            assert engine.health().ok
            broken.clear()
            assert await engine.execute("ses_bad") == Succeeded()
            assert (await engine.wait_turn("ses_bad", "inp_bad")).how == "succeeded"

    run_test(main)


def test_a_ring_for_a_session_that_isnt_there_is_said_to_who_asked() -> None:
    """Executing an unknown session is `SessionNotFound`; a mere ring for one leaves nothing behind."""

    async def main() -> None:
        async with open_test_engine() as engine:
            engine.coordinator.wake("ses_ghost")
            await engine.wait_idle()
            with pytest.raises(SessionNotFound, match="ses_ghost"):
                await engine.execute("ses_ghost")
            assert engine.coordinator.active() == ()

    run_test(main)


def test_a_slot_inherits_nothing_from_who_rang() -> None:
    """An execution runs in the engine's own context, whoever's ring started it."""
    who = contextvars.ContextVar("who", default="nobody")
    seen: list[str] = []

    async def listen(stored: Stored) -> None:
        if stored.type == "execution.started":
            seen.append(who.get())

    async def main() -> None:
        async with open_test_engine(listeners=[listen]) as engine:
            session = await engine.create_session()
            who.set("the host")
            await session.run("hello")
            await engine.wait_idle()
        assert seen == ["nobody"]

    run_test(main)


# --- several engines ---------------------------------------------------------------------------------


@pytest.mark.trio
async def test_two_engines_in_one_process(tmp_path: Path) -> None:
    """Two engines on one file share every session: whichever is asked, each input is answered once, by one
    execution at a time, and followers of either see the same log."""
    path = tmp_path / "two.db"
    async with engine_on(path, Model()) as one, engine_on(path, Model()) as two:
        names = [f"ses_{number}" for number in range(4)]
        for name in names:
            await one.create_session(session_id=name)

        async def talk(engine: Engine, name: str, who: str) -> None:
            for number in range(6):
                input_id = f"inp_{name}_{who}_{number}"
                await engine.send(name, "hello", input_id=input_id)
                assert (await engine.wait_turn(name, input_id)).how == "succeeded"

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(talk, one, name, "one")
                nursery.start_soon(talk, two, name, "two")
        await one.wait_idle()
        await two.wait_idle()
        owners = set()
        for name in names:
            stored = await stored_in(one.node.log, name)
            assert stored == await stored_in(two.node.log, name)
            assert [item.type for item in stored].count("input.promoted") == 12
            starts = [item.event for item in stored if isinstance(item.event, ExecutionStarted)]
            assert [start.generation for start in starts] == [*range(1, len(starts) + 1)]
            assert all(start.previous_execution_id is None for start in starts), "nobody was robbed"
            owners |= {start.owner_id for start in starts}
        assert owners == {one.node.owner_id, two.node.owner_id}
    await assert_clean(path)


@pytest.mark.trio
async def test_an_engine_that_leaves_is_succeeded_by_its_neighbour(tmp_path: Path) -> None:
    """What one engine hands over when it closes is taken up by the other's next sweep, without a lease having
    to end."""
    path = tmp_path / "two.db"
    config = EngineConfig(shutdown_grace_ms=0, sweep_interval_ms=20, poll_ms=5)
    model = Model(held=True)
    async with engine_on(path, Model(says("from the neighbour")), config=config) as stays:
        async with engine_on(path, model, config=config) as leaves:
            session = await leaves.create_session()
            admitted = await leaves.send(session.id, "hello")
            await model.wait_asked()
        turn = await stays.wait_turn(session.id, admitted.input_id)
        assert (turn.how, turn.text) == ("succeeded", "from the neighbour")
        await until(lambda: not stays.coordinator.active())
        assert (await types_in(stays, session.id)).count("execution.handed_over") == 1
    await assert_clean(path)
