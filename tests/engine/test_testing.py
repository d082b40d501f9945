"""`engine.testing`: virtual time, a database in memory, engines that follow each other."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio

from engine.errors import StoreClosed
from engine.events import ExecutionStarted, StepInterrupted, Stored
from engine.limits import EngineConfig
from engine.ports import Tool, ToolContext
from engine.providers.script import Call, Finish, Stall, Text, reply, says
from engine.providers.scripted import ScriptedProvider
from engine.reading import Synced
from engine.testing import (
    CountedIds,
    EvenChance,
    MemoryDatabase,
    VirtualClock,
    World,
    crash,
    open_test_engine,
    run_test,
    verify,
)
from engine.testing.world import WALL_MS
from tests.contracts.store_cases import Recorder, append, seqs

DAY_MS = 86_400_000


def pay_tool(calls: list[str], seconds: float = 0.0) -> Tool:
    """A tool that notes its call, and then takes its time."""

    async def pay(context: ToolContext, arguments: dict[str, Any]) -> str:
        calls.append(context.call_id)
        await trio.sleep(seconds)
        return "paid"

    return Tool(name="pay", description="Pays.", schema={"type": "object"}, handler=pay)


def paying(world: World) -> ScriptedProvider:
    """A model that calls the tool, and then says that it is done."""
    call = reply(Call(call="call_1", tool="pay"), Finish(finish="tool_calls"))
    return ScriptedProvider(world.clock, [call, says("Done.")])


# --- time --------------------------------------------------------------------------------------------


def test_virtual_time_jumps_over_every_wait() -> None:
    """A model that takes an hour is answered at once, and both clocks show the hour."""

    async def main() -> None:
        world = World()
        slow = reply(Stall(stall_ms=50 * 60_000), Text(text="At last."), Finish())
        config = EngineConfig(provider_idle_ms_max=DAY_MS)
        provider = ScriptedProvider(world.clock, [slow])
        async with open_test_engine(world=world, provider=provider, config=config) as node:
            turn = await (await node.create_session()).run("Take your time.")
            assert (turn.how, turn.text) == ("succeeded", "At last.")
        assert world.clock.monotonic() == pytest.approx(3_000, abs=10)
        assert world.clock.now_ms() - WALL_MS == pytest.approx(3_000_000, abs=10_000)

    run_test(main)


def test_a_test_that_never_ends_fails() -> None:
    """Waiting for what never happens is a `TimeoutError` after the bound, in virtual seconds."""

    async def main() -> None:
        async with open_test_engine():
            await trio.sleep_forever()

    with pytest.raises(TimeoutError, match="10 s of virtual time"):
        run_test(main, virtual_s_max=10)


def test_run_test_passes_on_what_goes_in_and_out() -> None:
    """Arguments reach the test, and its value or error comes back as it is."""
    error = ValueError("mine")

    async def double(number: int) -> int:
        await trio.sleep(1)
        return 2 * number

    async def failing() -> None:
        async with open_test_engine():
            raise error

    assert run_test(double, 21) == 42
    with pytest.raises(ValueError, match="mine") as caught:
        run_test(failing)
    assert caught.value is error


def test_an_engine_in_real_time_is_refused() -> None:
    """A test engine under a real clock would wait for real, so it says how to run it instead."""

    async def main() -> None:
        async with open_test_engine():
            pass

    with pytest.raises(RuntimeError, match="run_test"):
        trio.run(main)


def test_the_wall_clock_follows_and_can_be_set() -> None:
    """The wall moves with virtual time; setting it steps it, forwards or back, and touches no sleep."""

    async def main() -> None:
        clock = VirtualClock(wall_ms=5_000)
        assert clock.now_ms() == 5_000
        await clock.sleep(1.5)
        assert clock.now_ms() == 6_500
        for wall_ms in (1_000, 90_000):
            before = clock.monotonic()
            clock.set_wall_ms(wall_ms)
            assert (clock.now_ms(), clock.monotonic()) == (wall_ms, before)
            await clock.sleep(0.25)
            assert (clock.now_ms(), clock.monotonic()) == (wall_ms + 250, before + 0.25)

    run_test(main)


def test_what_is_stored_carries_the_set_wall_time() -> None:
    """Events get the wall time of the test's world."""

    async def main() -> None:
        world = World()
        world.clock.set_wall_ms(123_456)
        async with open_test_engine(world=world) as node:
            session = await node.create_session()
            async with session.log() as reader:
                assert [item.created async for item in reader if isinstance(item, Stored)] == [123_456]

    run_test(main)


def test_ids_and_chance_hold_no_surprise() -> None:
    """Ids count for each prefix apart and are shared by the engines of a world; jitter is nil."""
    ids = CountedIds()
    assert [ids.new(prefix) for prefix in ("ses", "msg", "ses")] == ["ses_1", "msg_1", "ses_2"]
    assert EvenChance().fraction() == 0.5

    async def main() -> None:
        world = World()
        async with open_test_engine(world=world) as one, open_test_engine(world=world) as other:
            made = [(await node.create_session()).id for node in (one, other, one)]
            assert made == ["ses_1", "ses_2", "ses_3"]
            assert one.node.owner_id != other.node.owner_id

    run_test(main)


# --- the store ---------------------------------------------------------------------------------------


def test_no_thread_is_started() -> None:
    """Nothing of a test engine runs behind Trio's back, or the clock could jump over it."""
    threads = threading.active_count()

    async def main() -> None:
        async with open_test_engine() as node:
            await (await node.create_session()).run("hello")
            assert threading.active_count() == threads

    run_test(main)


def test_a_commit_is_heard_of_by_the_other_stores_only() -> None:
    """The writer's observers get the events, those of other stores a hint, those of closed ones nothing."""

    async def main() -> None:
        database = MemoryDatabase()
        stores = [database.open_store(lambda: 0) for _ in range(3)]
        heard = [Recorder() for _ in stores]
        for store, recorder in zip(stores, heard, strict=True):
            store.observe(recorder)
        stores[2].close()
        await stores[0].write(append())
        assert heard[0].notes == [("committed", ["evt_ses_a_0"])]
        assert heard[1].notes == [("changed_elsewhere",)]
        assert heard[2].notes == []
        with pytest.raises(ZeroDivisionError):
            await stores[0].write(lambda tx: 1 // 0)
        assert len(heard[1].notes) == 1
        assert await stores[1].read(seqs()) == [0]

    run_test(main)


def test_a_closed_store_refuses_and_the_database_stays() -> None:
    """A closed store reads and writes nothing, and says so; what was committed can still be read."""

    async def main() -> None:
        database = MemoryDatabase()
        store = database.open_store(lambda: 0)
        await store.write(append())
        assert store.health().writable
        store.close()
        with pytest.raises(StoreClosed):
            await store.write(append())
        with pytest.raises(StoreClosed):
            await store.read(seqs())
        health = store.health()
        assert not health.writable
        assert "closed" in (health.error or "")
        assert database.read(seqs()) == [0]

    run_test(main)


def test_a_follower_hears_of_another_engines_commits() -> None:
    """Two engines on one world see each other's work, as two processes on one file do."""

    async def main() -> None:
        world = World()
        async with open_test_engine(world=world) as one, open_test_engine(world=world) as other:
            session = await one.create_session()
            async with other.log(session.id, follow=True) as reader:
                assert [type(await anext(reader)) for _ in range(2)] == [Stored, Synced]
                await session.send("hello")
                seen = await anext(reader)
                assert isinstance(seen, Stored)
                assert seen.type == "input.admitted"

    run_test(main)


# --- what outlives an engine -------------------------------------------------------------------------


def test_a_crashed_engine_is_succeeded_after_its_lease() -> None:
    """After a crash the next engine waits for the lease, settles the step as unknown, and calls no tool twice
    for one call."""

    async def main() -> None:
        world, calls, config = World(), list[str](), EngineConfig()
        provider, tools = paying(world), [pay_tool(calls, seconds=DAY_MS / 1000)]
        async with open_test_engine(world=world, provider=provider, tools=tools, check=False) as node:
            session = await node.create_session()
            admitted = await session.send("Pay, please.")
            await trio.sleep(1)
            crashed_at = world.clock.monotonic()
            crash(node)
        async with open_test_engine(world=world, provider=provider, tools=tools) as node:
            turn = await node.wait_turn(session.id, admitted.input_id)
            assert (turn.how, turn.text, calls) == ("succeeded", "Done.", ["call_1"])
            assert world.clock.monotonic() - crashed_at > config.lease_ms / 1000 - 1
            async with node.log(session.id) as reader:
                events = [item.event async for item in reader if isinstance(item, Stored)]
        assert [event.cause for event in events if isinstance(event, StepInterrupted)] == ["unknown"]
        assert [event.generation for event in events if isinstance(event, ExecutionStarted)] == [1, 2]

    run_test(main)


def test_a_closed_engine_hands_over() -> None:
    """An engine that was left in an orderly way is succeeded at once, without waiting for its lease."""

    async def main() -> None:
        world = World()
        stalling = reply(Text(text="Wait"), Stall(stall_ms=60_000), Finish())
        provider = ScriptedProvider(world.clock, [stalling, says("Done.")])
        async with open_test_engine(world=world, provider=provider) as node:
            session = await node.create_session()
            admitted = await session.send("hello")
            await trio.sleep(1)
        assert [each.kind for each in verify(world)[session.id].pending] == ["claim"]
        assert not node.health().ok
        with pytest.raises(StoreClosed):
            await node.node.log.store.read(seqs())
        left_at = world.clock.monotonic()
        async with open_test_engine(world=world, provider=provider) as node:
            assert (await node.wait_turn(session.id, admitted.input_id)).text == "Done."
        assert world.clock.monotonic() - left_at < 1
        assert verify(world)[session.id].pending == ()

    run_test(main)
