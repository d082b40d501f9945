"""One node in a process of its own, for the tests with several; it tells what happens as JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from engine.api import Engine
from engine.limits import EngineConfig
from engine.ports import Provider, Tool, ToolContext
from engine.providers.script import Reply, parse_reply, says
from engine.providers.scripted import ScriptedProvider
from engine.service import open_engine
from engine.system import RealClock
from tests.engine.real import Model, wait_for

CONFIG = EngineConfig(
    lease_ms=3_000,
    clock_skew_ms_max=200,
    settle_ms_max=300,
    write_timeout_ms=1_000,
    sweep_interval_ms=200,
    poll_ms=10,
    shutdown_grace_ms=0,
    tool_grace_ms=100,
)
TURNS = 5
CALL = parse_reply([{"call": "c1", "tool": "double", "input": {"n": 2}}, {"finish": "tool_calls"}], "call")


async def _double(context: ToolContext, value: dict[str, Any]) -> Any:
    await trio.lowlevel.checkpoint()
    return 2 * value["n"]


def tell(what: str, **more: Any) -> None:
    sys.stdout.write(json.dumps({"what": what, **more}) + "\n")
    sys.stdout.flush()


@asynccontextmanager
async def _engine(path: str, provider: Provider) -> AsyncIterator[Engine]:
    tools = [Tool(name="double", description="", schema={"type": "object"}, handler=_double)]
    async with open_engine(path, provider=provider, tools=tools, config=CONFIG) as engine:
        yield engine


async def slow(path: str) -> None:
    """Hold a session in the middle of its answer, for longer than anybody's patience; tell how it ended."""
    reply = parse_reply([{"text": "slow "}, {"stall_ms": 3_600_000}, {"finish": "stop"}], "slow")
    async with _engine(path, ScriptedProvider(RealClock(), [reply])) as engine:
        await engine.create_session(session_id="ses_a")
        await engine.send("ses_a", "x", input_id="inp_x")
        await wait_for(engine, "ses_a", "text.started")
        tell("speaking")
        ending = await engine.execute("ses_a")
        tell("ended", how=type(ending).__name__)


async def heir(path: str) -> None:
    """Finish the session of `slow`."""
    async with _engine(path, Model(says("finished by the heir"))) as engine:
        result = await engine.wait_turn("ses_a", "inp_x")
        await engine.wait_idle()
        tell("result", how=result.how, text=result.text)


async def busy(path: str) -> None:
    """Run several turns of an own session."""
    replies: list[Reply] = [CALL, says("four")] * TURNS
    async with _engine(path, Model(*replies)) as engine:
        session = await engine.create_session()
        for turn in range(TURNS):
            result = await session.run(f"turn {turn}")
            tell("turn", how=result.how, text=result.text)


if __name__ == "__main__":
    trio.run({"slow": slow, "heir": heir, "busy": busy}[sys.argv[1]], sys.argv[2])
