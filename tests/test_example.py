"""The example service, as real processes that are killed and stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

ROOT = Path(__file__).parent.parent
FAIL_SAFE_S = 120
NEVER_MS = 10**9

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")


class Lines:
    """The JSON lines of a stream, one after another."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._buffer = b""

    async def next(self) -> Any:
        """The next line. Fails at the end of the stream."""
        while b"\n" not in self._buffer:
            data = await self._stream.receive_some()
            assert data, "the service ended without saying more"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    async def until(self, wanted: str) -> list[str]:
        """Read until an event of type `wanted`; the types that were read."""
        seen = []
        while wanted not in seen:
            seen.append((await self.next())["type"])
        return seen


@attrs.frozen
class Service:
    """One running process of the service, and a connection to it."""

    process: trio.Process
    events: Lines
    commands: trio.SocketStream
    answers: Lines

    async def do(self, command: str, **fields: Any) -> Any:
        """Send one command; its answer."""
        await self.commands.send_all(json.dumps({"do": command, **fields}).encode() + b"\n")
        return await self.answers.next()

    async def send(self, text: str, input_id: str = "inp_1") -> str:
        """Create a session and send it a text; the session."""
        session: str = (await self.do("create"))["session"]
        assert await self.do("send", session=session, text=text, id=input_id) == {"created": True}
        return session

    async def stop(self) -> list[str]:
        """SIGTERM; the types of the events that were still said, once it has ended well."""
        self.process.send_signal(signal.SIGTERM)
        rest = b""
        assert self.process.stdout is not None
        async for data in self.process.stdout:
            rest += data
        assert await self.process.wait() == 0
        return [json.loads(line)["type"] for line in rest.splitlines()]

    async def kill(self) -> None:
        """SIGKILL, and wait until it is dead."""
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def service(file: Path, *, pause_ms: int = 0) -> AsyncIterator[Service]:
    """A process of the service on `file`; whatever happens, it is gone after the block."""
    command = [sys.executable, str(ROOT / "examples" / "service.py"), str(file), f"--pause-ms={pause_ms}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    try:
        events = Lines(process.stdout)
        ready = await events.next()
        assert ready["type"] == "ready"
        async with await trio.open_tcp_stream("127.0.0.1", ready["port"]) as stream:
            yield Service(process, events, stream, Lines(stream))
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
        await process.stdout.aclose()


def run(case: Callable[[], Awaitable[None]]) -> None:
    """Run a case that fails rather than hangs."""

    async def main() -> None:
        with trio.fail_after(FAIL_SAFE_S):
            await case()

    trio.run(main)


def verified(file: Path) -> Any:
    """What `python -m engine verify` says of the file; it must be clean."""
    command = [sys.executable, "-m", "engine", "verify", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def types(file: Path, session: str) -> list[str]:
    """The types of the session's events, by `python -m engine log`."""
    command = [sys.executable, "-m", "engine", "log", "--json", str(file), session]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return [json.loads(line)["type"] for line in done.stdout.splitlines()]


def test_killed_in_mid_answer(tmp_path: Path) -> None:
    """After SIGKILL in the middle of an answer the next process settles it as unknown, answers, and leaves a
    log that is clean and a session at rest."""
    file = tmp_path / "sessions.db"

    async def case() -> None:
        async with service(file, pause_ms=NEVER_MS) as first:
            session = await first.send("Hello")
            await first.events.until("text.started")
            await first.kill()
        async with service(file) as second:
            turn = await second.do("wait", session=session, id="inp_1")
            assert turn == {"how": "succeeded", "text": "You shall have it."}
            again = await second.do("send", session=session, text="Hello", id="inp_1")
            assert again == {"created": False}
            await second.stop()
        report = verified(file)
        assert (report["sessions"], report["pending"]) == (1, [])
        seen = types(file, session)
        assert seen.count("execution.started") == 2
        assert seen.count("step.interrupted") == 1
        assert seen[-1] == "execution.succeeded"
        assert "execution.handed_over" not in seen

    run(case)


def test_stopped_in_mid_answer(tmp_path: Path) -> None:
    """SIGTERM settles and hands over within a bound, says so, and the next process goes on at once."""
    file = tmp_path / "sessions.db"

    async def case() -> None:
        async with service(file, pause_ms=NEVER_MS) as first:
            session = await first.send("Hello")
            await first.events.until("text.started")
            said = await first.stop()
            assert said[-2:] == ["step.interrupted", "execution.handed_over"]
        assert [each["kind"] for each in verified(file)["pending"]] == ["claim"]
        async with service(file) as second:
            turn = await second.do("wait", session=session, id="inp_1")
            assert turn == {"how": "succeeded", "text": "You shall have it."}
            await second.stop()
        assert verified(file)["pending"] == []

    run(case)


def test_killed_after_the_tool(tmp_path: Path) -> None:
    """An order that was placed before the process was killed is placed once, and its answer still comes."""
    file = tmp_path / "sessions.db"

    async def case() -> None:
        async with service(file, pause_ms=NEVER_MS) as first:
            session = await first.send("order tea")
            await first.events.until("tool.succeeded")
            await first.events.until("text.started")
            await first.kill()
        async with service(file) as second:
            assert (await second.do("wait", session=session, id="inp_1"))["how"] == "succeeded"
            await second.stop()
        (order,) = tmp_path.glob("ses_*.json")
        assert json.loads(order.read_text()) == {"what": "tea", "generation": 1}
        assert types(file, session).count("tool.called") == 1
        assert verified(file)["ok"]

    run(case)


def test_two_processes_share_the_file(tmp_path: Path) -> None:
    """A process waits for, and interrupts, what another one executes."""
    file = tmp_path / "sessions.db"

    async def case() -> None:
        async with service(file, pause_ms=NEVER_MS) as one, service(file) as other:
            session = await one.send("Hello")
            await one.events.until("text.started")
            assert await other.do("interrupt", session=session) == {"answer": "settled"}
            assert (await other.do("wait", session=session, id="inp_1"))["how"] == "interrupted"
            await other.stop()
            await one.stop()
        assert verified(file)["pending"] == []

    run(case)


def test_mistakes_are_answered(tmp_path: Path) -> None:
    """A bad command, a line that isn't JSON and an unknown session are answered, and the service lives on."""

    async def case() -> None:
        async with service(tmp_path / "sessions.db") as one:
            assert (await one.do("fly"))["error"] == "BadCommand"
            await one.commands.send_all(b"not json\n")
            assert (await one.answers.next())["error"] == "JSONDecodeError"
            assert (await one.do("send", session="ses_x", text="", id="i"))["error"] == "SessionNotFound"
            assert (await one.do("create"))["session"].startswith("ses_")
            await one.stop()

    run(case)
