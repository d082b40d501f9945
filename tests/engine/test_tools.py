"""Tools as their step sees them: bounded in time and size, and never a defect of the session."""

from __future__ import annotations

import math
from typing import Any

import trio

from engine.errors import ToolError
from engine.events import Stored, ToolFailed, ToolSucceeded
from engine.limits import EngineConfig
from engine.ports import Tool, ToolContext, ToolHandler
from engine.providers.script import Call, Finish, reply, says
from engine.providers.scripted import ScriptedProvider
from engine.testing import World, open_test_engine, run_test

CALL = reply(Call(call="c1", tool="work", input={}), Finish(finish="tool_calls"))


def outcome(handler: ToolHandler, config: EngineConfig | None = None) -> ToolSucceeded | ToolFailed:
    """The terminal of one call of a tool with this handler."""

    async def main() -> ToolSucceeded | ToolFailed:
        world = World()
        tool = Tool(name="work", description="", schema={"type": "object"}, handler=handler)
        provider = ScriptedProvider(world.clock, [CALL, says("Done")])
        async with open_test_engine(provider=provider, tools=[tool], config=config, world=world) as engine:
            session = await engine.create_session()
            assert (await session.run("Go")).how == "succeeded"
            async with session.log() as log:
                events = [item.event async for item in log if isinstance(item, Stored)]
        (found,) = [event for event in events if isinstance(event, ToolSucceeded | ToolFailed)]
        return found

    return run_test(main, virtual_s_max=20_000.0)


def test_a_tool_that_never_returns_is_stopped() -> None:
    """Past `tool_ms_max` a call is stopped, its outcome is unknown, and the turn goes on."""

    async def hang(context: ToolContext, value: dict[str, Any]) -> None:
        await trio.sleep(math.inf)

    found = outcome(hang, EngineConfig(tool_ms_max=60_000))
    assert isinstance(found, ToolFailed)
    assert (found.error.type, found.outcome) == ("timeout", "unknown")


def test_a_huge_output_is_cut_and_marked() -> None:
    """An output past `tool_output_bytes_max` is cut, with the cut marked, and the session stays usable."""

    async def shout(context: ToolContext, value: dict[str, Any]) -> str:
        return "a" * 24_000_000

    found = outcome(shout)
    assert isinstance(found, ToolSucceeded)
    assert found.truncated
    assert len(found.output) <= EngineConfig().tool_output_bytes_max


def test_an_output_that_json_cannot_hold_fails_the_call() -> None:
    """NaN is no JSON: the call fails with an unknown outcome, for the tool did run."""

    async def nothing(context: ToolContext, value: dict[str, Any]) -> float:
        return math.nan

    found = outcome(nothing)
    assert isinstance(found, ToolFailed)
    assert (found.error.type, found.outcome) == ("invalid-output", "unknown")


def test_a_tools_own_error_is_told_within_bounds() -> None:
    """The model sees a ToolError's words, cut where they would outgrow an event."""

    async def fail(context: ToolContext, value: dict[str, Any]) -> None:
        raise ToolError("busy", "x" * 5_000_000, details={"rows": ["y" * 5_000_000]})

    found = outcome(fail)
    assert isinstance(found, ToolFailed)
    assert (found.error.type, found.outcome) == ("busy", "failed")
    assert len(found.error.message) <= EngineConfig().error_bytes_max
