"""A small service around the engine. Any number of these processes may share one file:

    python examples/service.py sessions.db

It prints a JSON line for each event, the first of them {"type": "ready", "port": …}, and answers commands,
one JSON object a line, on that port of the loopback interface. `obey` lists them. SIGTERM or Ctrl-C ends it:
what runs is settled and handed over, and the next process goes on with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import trio

from engine import Engine, EngineConfig, FencepostError, Stored, Tool, ToolContext, open_engine
from engine.events import TextDelta
from engine.providers.script import Call, Finish, Reply, Text, reply
from engine.providers.scripted import ScriptedProvider
from engine.records import Request
from engine.system import RealClock

# A crashed process is succeeded after 1.5 s: short, for one machine, where all processes read one clock. With
# nodes on several machines keep the defaults, which bear 5 s of skew.
CONFIG = EngineConfig(
    lease_ms=1_500,
    clock_skew_ms_max=50,
    settle_ms_max=350,
    write_timeout_ms=350,
    sweep_interval_ms=250,
    shutdown_grace_ms=500,
)


def order_tool(folder: Path) -> Tool:
    """Places an order by creating a file, whose name is the same whenever the same call is made."""

    async def order(context: ToolContext, arguments: dict[str, Any]) -> dict[str, Any]:
        fence = context.fence
        placed = folder / f"{fence.session_id}.{context.assistant_message_id}.{context.call_id}.json"
        with contextlib.suppress(FileExistsError), placed.open("x") as file:
            json.dump({"what": arguments["what"], "generation": fence.generation}, file)
        return {"order": placed.name}

    schema = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
    return Tool(name="order", description="Orders something.", schema=schema, handler=order)


def answer(request: Request, pause_ms: int) -> Reply:
    """The model: it orders what a user tells it to, and otherwise talks slowly."""
    last = request.messages[-1]
    verb, _, what = str(last.parts[0].get("text", "")).partition(" ")
    if last.role == "user" and verb == "order":
        return reply(Call(call="call_1", tool="order", input={"what": what}), Finish(finish="tool_calls"))
    return reply(Text(text=("You", " shall", " have", " it.", ""), every_ms=pause_ms), Finish())


async def obey(engine: Engine, command: Any) -> dict[str, Any]:
    """Carry out one command; what to answer."""
    match command:
        case {"do": "create"}:
            return {"session": (await engine.create_session()).id}
        case {"do": "send", "session": str(session), "text": str(text), "id": str(input_id)}:
            return {"created": (await engine.send(session, text, input_id=input_id)).created}
        case {"do": "wait", "session": str(session), "id": str(input_id)}:
            turn = await engine.wait_turn(session, input_id)
            return {"how": turn.how, "text": turn.text}
        case {"do": "interrupt", "session": str(session)}:
            return {"answer": await engine.interrupt(session)}
    return {"error": "BadCommand", "message": "see `obey` in examples/service.py"}


async def serve(engine: Engine, stream: trio.SocketStream) -> None:
    """Answer the commands of one connection, in order."""
    rest = b""
    with contextlib.suppress(trio.BrokenResourceError):  # a client may go at any time
        async for data in stream:
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                try:
                    said = await obey(engine, json.loads(line))
                except (FencepostError, ValueError) as exc:
                    said = {"error": type(exc).__name__, "message": str(exc)}
                await stream.send_all(json.dumps(said).encode() + b"\n")
            if len(rest) > 65_536:
                return


def say(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


async def watch(engine: Engine) -> None:
    """Say what happens in this process, until the engine is closed."""
    with engine.live() as live:
        async for item in live:
            if isinstance(item, Stored):
                say(type=item.type, session=item.event.session_id, seq=item.seq)
            elif isinstance(item, TextDelta):
                say(type=item.type, session=item.session_id, text=item.text)


async def main(file: Path, pause_ms: int) -> None:
    provider = ScriptedProvider(RealClock(), choose=partial(answer, pause_ms=pause_ms))
    tools = [order_tool(file.parent)]
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with (
            trio.open_nursery() as watching,  # around the engine, to see what closing it writes
            open_engine(file, provider=provider, tools=tools, config=CONFIG) as engine,
            trio.open_nursery() as serving,
        ):
            watching.start_soon(watch, engine)
            serve_tcp = partial(trio.serve_tcp, partial(serve, engine), 0, host="127.0.0.1")
            listeners = await serving.start(serve_tcp)
            say(type="ready", port=listeners[0].socket.getsockname()[1])
            await anext(signals)
            serving.cancel_scope.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--pause-ms", type=int, default=200, help="between two words of an answer")
    given = parser.parse_args()
    trio.run(main, given.file, given.pause_ms)
