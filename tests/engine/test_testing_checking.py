"""Checking what a test left in its database, and samples for tests without an engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import engine
from engine.providers.script import says
from engine.providers.scripted import ScriptedProvider
from engine.testing import (
    VirtualClock,
    World,
    assert_sound,
    open_test_engine,
    run_test,
    sample_context,
    sample_request,
    verify,
)
from tests.engine.test_testing import pay_tool


def break_log(world: World) -> None:
    """Take the first step's start out of the log, as no engine ever would."""
    world.database.connection.execute("DELETE FROM event WHERE type = 'step.started'")


def test_a_sound_log_is_found_sound() -> None:
    """`verify` has one entry for each session, during the block and after it."""

    async def main() -> None:
        async with open_test_engine() as node:
            session = await node.create_session()
            await session.run("hello")
            assert_sound(node)
            assert {key: found.ok for key, found in verify(node).items()} == {session.id: True}
        assert list(verify(node)) == [session.id]

    run_test(main)


@pytest.mark.parametrize("sql", ["", "UPDATE event SET data = x'7b7d' WHERE type = 'step.started'"])
def test_a_broken_log_is_named(sql: str) -> None:
    """Whatever breaks an invariant, or can't be read, is said with its session."""
    world = World()

    async def main() -> None:
        async with open_test_engine(world=world) as node:
            await (await node.create_session()).run("hello")
        if sql:
            world.database.connection.execute(sql)
        else:
            break_log(world)
        named = "unreadable in ses_1: " if sql else "I8 in ses_1 at seq"
        for of in (world, node):
            with pytest.raises(AssertionError, match=named):
                assert_sound(of)

    run_test(main)


def test_leaving_the_block_checks_the_log() -> None:
    """A broken log fails the test that made it, unless it asked for no check or failed by itself."""

    async def main(check: bool, error: Exception | None) -> None:
        world = World()
        async with open_test_engine(world=world, check=check) as node:
            await (await node.create_session()).run("hello")
            break_log(world)
            if error is not None:
                raise error

    with pytest.raises(AssertionError, match="not sound"):
        run_test(main, True, None)
    run_test(main, False, None)
    with pytest.raises(KeyError):
        run_test(main, True, KeyError())


def test_an_engine_on_a_file_is_checked_elsewhere(tmp_path: Path) -> None:
    """`verify` is for test engines, and names the command for files."""

    async def main() -> None:
        async with engine.open_engine(tmp_path / "file.db") as node:
            with pytest.raises(TypeError, match="python -m engine verify"):
                verify(node)

    trio.run(main)


def test_samples_call_tools_and_providers_by_themselves() -> None:
    """A handler runs with a sample context, a provider with a sample request, each changed at will."""

    async def main() -> None:
        calls: list[str] = []
        tool = pay_tool(calls)
        context = sample_context(call_id="call_9")
        context.progress({"done": 1})
        assert await tool.handler(context, {}) == "paid"
        assert calls == ["call_9"]
        request = sample_request("Good morning", model="big")
        assert (request.model, request.messages[0].parts[0]["text"]) == ("big", "Good morning")
        async with ScriptedProvider(VirtualClock(), [says("Hello")]).open(request) as events:
            assert [type(event).__name__ async for event in events][-1] == "Finish"

    run_test(main)
