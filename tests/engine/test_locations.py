"""Locations: opened once, shared by the sessions that use them, closed when the last one leaves."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from engine import events as ev
from engine.endings import FailedWith
from engine.errors import ConfigError, LocationFailed
from engine.locations import Locations, Services, services
from engine.ports import Provider, Tool, ToolContext
from engine.providers.script import Call, Finish, Stall, reply, says
from engine.providers.scripted import ScriptedProvider
from engine.records import Request
from engine.testing import VirtualClock, World, open_test_engine, run_test
from tests.engine.real import stored_in, types_in


@attrs.define(eq=False)
class Places:
    """Opens locations, says in `told` what happens to them, and misbehaves as asked."""

    provider: Provider
    tools: Sequence[Tool] = ()
    open_s: float = 1.0
    close_s: float = 0.0
    fails: list[str] = attrs.field(factory=list)  #: messages of the openings to come
    close_fails: str | None = None
    told: list[str] = attrs.field(factory=list)

    @contextlib.asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[Services]:
        self.told.append(f"opening {name}")
        await trio.sleep(self.open_s)
        if self.fails:
            raise OSError(self.fails.pop(0))
        self.told.append(f"open {name}")
        try:
            yield services(self.provider, list(self.tools))
        finally:
            try:
                await trio.sleep(self.close_s)
                self.told.append(f"closed {name}")
            except trio.Cancelled:
                self.told.append(f"torn {name}")
                raise
        if self.close_fails is not None:
            raise OSError(self.close_fails)


def run_with(test: Any, **options: Any) -> Places:
    """Run `test(locations, places, default)` in virtual time; returns what happened to the places."""

    async def main() -> Places:
        clock = VirtualClock()
        default = services(ScriptedProvider(clock))
        places = Places(ScriptedProvider(clock), **options)
        async with trio.open_nursery() as nursery:
            await test(Locations(nursery, clock, default, places.open), places, default)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        return places

    return run_test(main)


# --- sharing -----------------------------------------------------------------------------------------


def test_sessions_share_one_opening_until_the_last_leaves() -> None:
    """Users that come while it opens, and while it is open, get the same services; it is opened once, and
    closed once the last one has left."""

    async def test(locations: Locations, places: Places, default: Services) -> None:
        got: list[Services] = []

        async def use(come_s: float, stay_s: float) -> None:
            await trio.sleep(come_s)
            async with locations.use("there") as found:
                got.append(found)
                await trio.sleep(stay_s)

        async with trio.open_nursery() as nursery:
            for come_s, stay_s in ((0, 5), (0, 1), (0.5, 1), (3, 10)):
                nursery.start_soon(use, come_s, stay_s)
            await trio.sleep(12)
            assert places.told == ["opening there", "open there"]
        assert len(got) == 4
        assert all(each is got[0] for each in got)
        assert got[0] is not default

    assert run_with(test).told == ["opening there", "open there", "closed there"]


def test_who_comes_later_opens_it_afresh() -> None:
    """After the last user left it is opened again, even while the former opening is still being closed."""

    async def test(locations: Locations, places: Places, default: Services) -> None:
        async with locations.use("there") as first:
            pass
        await trio.sleep(0.1)
        async with locations.use("there") as second:
            assert second is not first

    told = run_with(test, close_s=5.0).told
    assert told[:4] == ["opening there", "open there", "opening there", "open there"]


def test_places_are_apart() -> None:
    """Each name is a place of its own, and a session without a location gets the node's own services."""

    async def test(locations: Locations, places: Places, default: Services) -> None:
        async with locations.use(None) as own, locations.use("x") as x, locations.use("y") as y:
            assert own is default
            assert x is not y

    told = run_with(test).told
    assert told[:4] == ["opening x", "open x", "opening y", "open y"]
    assert sorted(told[4:]) == ["closed x", "closed y"]


# --- failing -----------------------------------------------------------------------------------------


def test_all_who_wait_hear_why_it_cant_be_opened() -> None:
    """Everyone who waited for a failed opening gets `LocationFailed` with the reason; the next one tries
    again, and may succeed."""

    async def test(locations: Locations, places: Places, default: Services) -> None:
        heard: list[str] = []

        async def use() -> None:
            with pytest.raises(LocationFailed) as caught:
                async with locations.use("there"):
                    raise AssertionError("it was never open")
            heard.append(str(caught.value))
            assert isinstance(caught.value.__cause__, OSError)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(use)
        assert heard == ["location 'there' can't be opened: no such host"] * 3
        async with locations.use("there"):
            pass

    told = run_with(test, fails=["no such host"]).told
    assert told == ["opening there", "opening there", "open there", "closed there"]


def test_without_an_opener_no_location_is_known() -> None:
    """A session that names a location on an engine that was opened without any fails with a clear word."""

    async def main() -> None:
        async with open_test_engine() as engine:
            session = await engine.create_session(location="there")
            turn = await session.run("hello")
            assert turn.how == "parked"
            assert turn.error is not None
            assert (turn.error.type, "opened without any" in turn.error.message) == ("location-failed", True)

    run_test(main)


def test_a_waiter_that_is_cancelled_leaves_the_others_alone() -> None:
    """Giving up while it opens counts as leaving; with nobody left, what was opened is closed again."""

    async def test(locations: Locations, places: Places, default: Services) -> None:
        async def give_up() -> None:
            with trio.move_on_after(0.5):
                async with locations.use("there"):
                    raise AssertionError("it was never open")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(give_up)
            async with locations.use("there"):
                pass
        await trio.sleep(1)
        assert places.told == ["opening there", "open there", "closed there"]
        await give_up()
        await trio.sleep(1)
        assert places.told[3:] == ["opening there", "open there", "closed there"]

    run_with(test)


def test_an_error_in_closing_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """What closing raises is logged with the place; who used it doesn't hear of it."""

    async def test(locations: Locations, places: Places, default: Services) -> None:
        async with locations.use("there"):
            pass
        async with locations.use("there"):
            pass

    told = run_with(test, close_fails="lost").told
    assert told.count("closed there") == 2
    assert [record.message for record in caplog.records] == ["closing a location failed"] * 2


def test_two_tools_of_one_name_are_refused() -> None:
    """Services name each tool once."""

    async def work(context: ToolContext, value: dict[str, Any]) -> str:
        return "worked"

    tool = Tool(name="work", description="", schema={"type": "object"}, handler=work)
    assert list(services(ScriptedProvider(VirtualClock()), [tool]).tools) == ["work"]
    with pytest.raises(ConfigError, match="two tools are named 'work'"):
        services(ScriptedProvider(VirtualClock()), [tool, tool])


# --- in an engine ------------------------------------------------------------------------------------


class Noting(ScriptedProvider):
    """A provider that keeps its requests."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked: list[Request] = []

    def open(self, request: Request) -> AbstractAsyncContextManager[Any]:
        self.asked.append(request)
        return super().open(request)


def test_a_session_gets_provider_and_tools_of_its_location() -> None:
    """Requests and calls of a session with a location go to what that offers, and carry its name; those of
    another session to the node's own."""

    async def main() -> None:
        world, called = World(), list[str | None]()

        async def look(context: ToolContext, value: dict[str, Any]) -> str:
            called.append(context.location)
            return "seen"

        tool = Tool(name="look", description="", schema={"type": "object"}, handler=look)
        call = reply(Call(call="c1", tool="look"), Finish(finish="tool_calls"))
        there = Noting(world.clock, [call, says("There.")])
        here = Noting(world.clock, [call, says("Here.")])
        places = Places(there, [tool])
        async with open_test_engine(world=world, provider=here, locations=places.open) as engine:
            far, near = await engine.create_session(location="there"), await engine.create_session()
            assert (await far.run("hello")).text == "There."
            assert (await near.run("hello")).text == "Here."
            assert called == ["there"]
            assert [request.location for request in there.asked] == ["there"] * 2
            assert [request.location for request in here.asked] == [None] * 2
            assert [[spec.name for spec in request.tools] for request in here.asked] == [[]] * 2
            await engine.wait_idle()
            await trio.sleep(1)
            assert places.told == ["opening there", "open there", "closed there"]
            failed = [item.event for item in await stored_in(engine.node.log, near.id)]
            assert [e.error.type for e in failed if isinstance(e, ev.ToolFailed)] == ["unknown-tool"]

    run_test(main)


def test_a_location_that_fails_parks_its_session_until_it_is_asked_again() -> None:
    """The execution fails with the location's own words and parks the input; resumed, it is opened afresh."""

    async def main() -> None:
        world = World()
        places = Places(ScriptedProvider(world.clock, [says("There.")]), fails=["no such host"])
        async with open_test_engine(world=world, locations=places.open) as engine:
            session = await engine.create_session(location="there")
            admitted = await session.send("hello")
            ending = await engine.execute(session.id)
            assert isinstance(ending, FailedWith)
            assert ending.error.message == "location 'there' can't be opened: no such host"
            assert (await types_in(engine, session.id))[-2:] == ["execution.started", "execution.failed"]
            await trio.sleep(60)
            assert places.told == ["opening there"]
            assert await session.resume()
            assert (await session.wait_turn(admitted.input_id)).text == "There."

    run_test(main)


def test_leaving_the_engine_lets_its_locations_close() -> None:
    """A location whose sessions are handed over by a shutdown closes in good order before the block ends."""

    async def main() -> None:
        world = World()
        slow = ScriptedProvider(world.clock, [reply(Stall(stall_ms=60_000), Finish())])
        places = Places(slow, close_s=2.0)
        async with open_test_engine(world=world, locations=places.open, check=False) as engine:
            session = await engine.create_session(location="there")
            await session.send("hello")
            await trio.sleep(2)
        assert places.told == ["opening there", "open there", "closed there"]

    run_test(main)


def test_a_location_that_never_closes_is_torn_down_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """A location that takes for ever to close holds the engine's end up no longer than its bound."""

    async def main() -> None:
        world = World()
        places = Places(ScriptedProvider(world.clock), close_s=100_000.0)
        async with open_test_engine(world=world, locations=places.open, check=False) as engine:
            session = await engine.create_session(location="there")
            await session.run("hello")
        assert places.told == ["opening there", "open there", "torn there"]
        assert world.clock.monotonic() < 300

    run_test(main)
    assert any("there" in record.getMessage() for record in caplog.records)
