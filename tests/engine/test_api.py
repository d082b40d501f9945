"""Bad input at the front door: refused by name, before anything is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from engine.api import Engine
from engine.endings import Ending, FailedWith, Succeeded
from engine.errors import ConfigError, EventError
from engine.events import Stored
from engine.ports import Tool
from engine.providers.script import Error, Finish, Text, reply, says
from engine.providers.scripted import ScriptedProvider
from engine.testing import World, open_test_engine, run_test

Verb = Callable[[Engine, Any], Awaitable[object]]

WRONG: dict[str, Verb] = {
    "'later'": lambda engine, bad: engine.send("ses_a", "x", delivery="later"),  # type: ignore[arg-type]
    "$.delivery": lambda engine, bad: engine.change_delivery("ses_a", "inp_a", "bad"),  # type: ignore[arg-type]
    "location": lambda engine, bad: engine.create_session(location=3),  # type: ignore[arg-type]
    "session_id": lambda engine, bad: engine.create_session(session_id=""),
    "input_id": lambda engine, bad: engine.send("ses_a", "x", input_id=""),
    "text is needed": lambda engine, bad: engine.create_session(title=5),  # type: ignore[arg-type]
    "isn't a JSON": lambda engine, bad: engine.send("ses_a", object()),
}


@pytest.mark.parametrize("named", WRONG)
def test_a_wrong_argument_is_refused_and_nothing_is_written(named: str) -> None:
    """Nothing that couldn't be read again is ever committed: the error names what was wrong."""

    async def main() -> None:
        world = World()
        provider = ScriptedProvider(world.clock, [says("Done")])
        async with open_test_engine(provider=provider, world=world) as engine:
            await engine.create_session(session_id="ses_a")
            await engine.send("ses_a", "Hello", input_id="inp_a", delivery="queue")
            before = await engine.sequences(["ses_a"])
            with pytest.raises(EventError) as caught:
                await WRONG[named](engine, None)
            assert named in str(caught.value)
            after = await engine.sequences(["ses_a"])
            assert after.keys() == before.keys()
            assert len(await engine.sessions()) == 1
            assert (await engine.wait_turn("ses_a", "inp_a")).how == "succeeded"

    run_test(main)


async def _handler(context: object, value: object) -> None: ...


def _tool(**changes: Any) -> Tool:
    fields: dict[str, Any] = {"name": "x", "description": "", "schema": {"type": "object"}}
    return Tool(handler=_handler, **{**fields, **changes})


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([_tool(), _tool()], "two tools are named 'x'"),
        ([_handler], "is no tool"),
        ([_tool(schema={"type": "objct"})], "the schema of tool 'x' is broken"),
        ([_tool(schema={"maximum": {1, 2}})], "the schema of tool 'x' isn't JSON"),
    ],
)
def test_a_wrong_tool_is_a_configuration_error(tools: list[Any], said: str) -> None:
    """What the host got wrong isn't told as a failure of the engine's machinery."""

    async def main() -> None:
        world = World()
        with pytest.raises(ConfigError, match=said):
            async with open_test_engine(provider=ScriptedProvider(world.clock), tools=tools, world=world):
                pass

    run_test(main)


def test_a_class_is_no_provider() -> None:
    """A provider's class instead of an instance is refused at once."""

    async def main() -> None:
        with pytest.raises(ConfigError, match="is no provider"):
            async with open_test_engine(provider=ScriptedProvider):  # type: ignore[arg-type]
                pass

    run_test(main)


def test_joiners_of_a_failed_run_all_hear_of_it_and_the_next_run_is_good() -> None:
    """Three who wait for one execution learn how it failed; a new input starts afresh."""

    async def main() -> None:
        world = World()
        provider = ScriptedProvider(world.clock, [reply(Error(error="auth", delay_ms=1_000)), says("Fine")])
        async with open_test_engine(provider=provider, world=world) as engine:
            session = await engine.create_session()
            await session.send("x")
            endings: list[Ending | None] = []

            async def join() -> None:
                endings.append(await engine.execute(session.id))

            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(join)
            assert [type(ending) for ending in endings] == [FailedWith] * 3
            assert (await session.run("again")).text == "Fine"

    run_test(main)


def test_one_waiter_that_gives_up_stops_nobody() -> None:
    """A cancelled joiner leaves the run and its other joiner alone."""

    async def main() -> None:
        world = World()
        provider = ScriptedProvider(
            world.clock, [reply(Text(text="Done", delay_ms=5_000), Finish(finish="stop"))]
        )
        async with open_test_engine(provider=provider, world=world) as engine:
            session = await engine.create_session()
            await session.send("x")
            with trio.move_on_after(1) as scope:
                await engine.execute(session.id)
            assert scope.cancelled_caught
            assert isinstance(await engine.execute(session.id), Succeeded)

    run_test(main)


def test_sequences_leave_out_what_does_not_exist() -> None:
    """Only sessions that are there have a latest seq."""

    async def main() -> None:
        world = World()
        async with open_test_engine(provider=ScriptedProvider(world.clock), world=world) as engine:
            await engine.create_session(session_id="ses_a")
            assert await engine.sequences(["ses_a", "ses_nowhere"]) == {"ses_a": 0}

    run_test(main)


def test_a_listener_can_read_the_row_that_it_is_told_of() -> None:
    """What a listener hears of is committed: it finds it in the log."""
    found: list[bool] = []

    async def main() -> None:
        world = World()

        async def look(stored: Stored) -> None:
            rows = await engine.node.log.store.read(
                lambda tx: tx.events(stored.event.session_id, stored.seq - 1, 1)
            )
            found.append([row.event_id for row in rows] == [stored.event_id])

        async with open_test_engine(
            provider=ScriptedProvider(world.clock), world=world, listeners=[look]
        ) as engine:
            session = await engine.create_session()
            await session.run("x")
        assert len(found) > 5
        assert all(found)

    run_test(main)
