"""Bad input at the front door: refused by name, before anything is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from engine.api import Engine
from engine.errors import ConfigError, EventError
from engine.ports import Tool
from engine.providers.script import says
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
