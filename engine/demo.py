"""A demonstration: one scripted session, shown as it happens, and then checked."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator

import attrs
import click
import trio

from engine import events as ev
from engine.api import Session
from engine.cli import show
from engine.cli.reading import verify_file
from engine.errors import StoreFileError
from engine.live import Subscriber
from engine.ports import Clock, System, Tool, ToolContext
from engine.providers.script import Call, Event, Finish, Reply, Stall, Text, reply
from engine.providers.scripted import ScriptedProvider
from engine.records import JSON
from engine.service import open_engine
from engine.store import open_readonly
from engine.system import real_system
from engine.verify import CHECKS

Write = Callable[[str], None]

EVERY_MS = 45
"""Between two pieces of text."""

TOOL_S = 0.4
NEVER_MS = 60_000

ANSWER = "High water at Brest is at 14:32, six metres and ten. The ebb begins at a quarter to three."
STORY = "Once upon a time there was a harbour whose tide had forgotten to turn, and the fishermen said"


def run(keep: str | None = None) -> None:
    """The demonstration on stdout, in real time. Raises `StoreFileError` if `keep` exists."""
    if keep is not None and os.path.lexists(keep):
        raise StoreFileError(f"{keep} exists already; the demonstration wants a fresh file")
    with _file(keep) as path:
        screen = _Stdout()
        try:
            trio.run(play, path, screen.write, real_system())
        except* KeyboardInterrupt:
            raise click.Abort from None
        if keep is not None:
            screen.write(f"\nThe database stays in {show.plain(keep)}. Look at it with:\n")
            for command in ("sessions", "verify"):
                screen.write(f"  python -m engine {command} {show.plain(keep)}\n")
    if screen.closed is not None:
        raise screen.closed


@contextlib.contextmanager
def _file(keep: str | None) -> Iterator[str]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="fencepost-demo-") as folder:
        yield os.path.join(folder, "demo.db")


@attrs.define
class _Stdout:
    """Standard output; once its reader has gone it swallows the rest, so that the engine closes in order."""

    closed: BrokenPipeError | None = None

    def write(self, text: str) -> None:
        if self.closed is None:
            try:
                sys.stdout.write(text)
                sys.stdout.flush()
            except BrokenPipeError as exc:
                self.closed = exc


# --- the play ----------------------------------------------------------------------------------------


async def play(path: str, write: Write, system: System, *, pace: float = 1.0) -> None:
    """Play the session into a fresh database at `path`; `pace` scales its pauses (0: none).

    Raises what `open_engine` raises.
    """
    follower = Follower(write)
    write("Fencepost: a session is an append-only log of events. This one is played by a script.\n")
    async with open_engine(
        path,
        provider=ScriptedProvider(system.clock, script(pace)),
        tools=[tide_tool(system.clock, pace)],
    ) as engine:
        with engine.live() as live:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(follower.follow, live, name="follower")
                session = await engine.create_session(title="Tides at Brest")
                await _first_turn(session, write, follower)
                await _second_turn(session, write, follower)
                nursery.cancel_scope.cancel()
    _check(path, write)


async def _first_turn(session: Session, write: Write, follower: Follower) -> None:
    _heading(
        write,
        "1. A turn with a tool",
        "Each line is an event as it is committed: its seq, its type, what it says.",
        "Text after a > is still arriving: it is live, and only its end is stored, as a whole.",
    )
    follower.show()
    result = await session.run("When is high water at Brest?")
    await follower.until(lambda: follower.latest == "execution.succeeded")
    _answer(write, f"session.run(…) returned: {result.how}")


async def _second_turn(session: Session, write: Write, follower: Follower) -> None:
    _heading(
        write,
        "2. A turn that is interrupted",
        "In the middle of the answer somebody calls session.interrupt(). What had arrived is kept,",
        "the step and its execution are closed, and nothing is left open.",
    )
    arrived = follower.pieces + len(_pieces(STORY))
    await session.send("Tell me a story about it.")
    await follower.until(lambda: follower.pieces >= arrived)
    answer = await session.interrupt()
    await follower.until(lambda: follower.latest == "execution.interrupted")
    _answer(write, f"session.interrupt() answered: {answer}")


def _check(path: str, write: Write) -> None:
    _heading(
        write,
        "3. The log is checked",
        "python -m engine verify reads the file again, naively, and holds it against the invariants.",
    )
    with open_readonly(path) as store:
        report = verify_file(store, path)
    verdict = "clean" if report.ok else "NOT CLEAN"
    _answer(
        write, f"{report.sessions} session, {report.events} events, checked {', '.join(CHECKS)}: {verdict}"
    )
    for breach in report.breaches:
        write(f"  {show.plain(breach.sentence)}\n")


def _heading(write: Write, title: str, *lines: str) -> None:
    write(f"\n{title}\n")
    for line in lines:
        write(f"   {line}\n")
    write("\n")


def _answer(write: Write, text: str) -> None:
    write(f"\n   => {show.plain(text)}\n")


# --- the cast ----------------------------------------------------------------------------------------


def script(pace: float) -> tuple[Reply, ...]:
    """Three requests: a tool call, its answer, and a story that stops in mid-sentence."""
    every_ms = round(EVERY_MS * pace)
    spoken = (*_pieces(ANSWER), "")
    told = [Event(event="text_chunk", text=piece, delay_ms=every_ms) for piece in _pieces(STORY)]
    return (
        reply(
            Text(text=("Let me", " look that", " up.", ""), every_ms=every_ms),
            Call(call="call_1", tool="tide", input={"harbour": "Brest"}),
            Finish(finish="tool_calls"),
        ),
        reply(Text(text=spoken, every_ms=every_ms), Finish()),
        reply(Event(event="text_start"), *told, Stall(stall_ms=NEVER_MS), Finish()),
    )


def _pieces(text: str) -> tuple[str, ...]:
    """Words with their blanks, as a model would send them."""
    first, *others = text.split()
    return (first, *(f" {word}" for word in others))


def tide_tool(clock: Clock, pace: float) -> Tool:
    """A tool that takes a moment and knows one harbour."""

    async def tide(context: ToolContext, arguments: dict[str, JSON]) -> JSON:
        await clock.sleep(TOOL_S * pace)
        return {"harbour": arguments["harbour"], "high_water": "14:32", "height_m": 6.1}

    schema = {"type": "object", "properties": {"harbour": {"type": "string"}}, "required": ["harbour"]}
    return Tool(name="tide", description="The next high water at a harbour.", schema=schema, handler=tide)


# --- who watches -------------------------------------------------------------------------------------


class Follower:
    """Prints the live channel: a line for each committed event, and text while it arrives.

    `latest` is the type of the event printed last, `pieces` how many pieces of text were printed.
    """

    def __init__(self, write: Write) -> None:
        self.latest = ""
        self.pieces = 0
        self._write = write
        self._kept: list[str] | None = []  # lines from before there was a heading to print them under
        self._in_text = False
        self._moved = trio.Event()

    async def follow(self, live: Subscriber) -> None:
        """Print until cancelled, or until the engine closes the channel."""
        async for item in live:
            if isinstance(item, ev.Stored):
                self._line(f"   {item.seq:>3}  {item.type:<22} {about(item.event)}".rstrip() + "\n")
                self.latest = item.type
            elif isinstance(item, ev.TextDelta):
                self._piece(item.text)
            self._moved.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what was printed meets the condition."""
        while not condition():
            self._moved = trio.Event()
            await self._moved.wait()

    def show(self) -> None:
        """Print what was kept back, and everything from now on at once."""
        kept, self._kept = self._kept or [], None
        for line in kept:
            self._write(line)

    def _line(self, line: str) -> None:
        if self._kept is not None:
            self._kept.append(line)
            return
        self._write(f"\n{line}" if self._in_text else line)
        self._in_text = False

    def _piece(self, text: str) -> None:
        self._write(show.plain(text) if self._in_text else f"        > {show.plain(text)}")
        self._in_text = True
        self.pieces += 1


def about(event: ev.Event) -> str:
    """What an event says, in a few words; nothing for those whose type says it all."""
    match event:
        case ev.SessionCreated(title=title):
            said: object = show.compact(title)
        case ev.InputAdmitted(payload=payload):
            said = show.compact(payload)
        case ev.ExecutionStarted(generation=generation):
            said = f"generation {generation}"
        case ev.StepStarted(attempt=attempt):
            said = f"attempt {attempt}: the request is sent"
        case ev.TextEnded(text=text, truncated=truncated):
            said = f"{show.compact(text)}{' (truncated)' if truncated else ''}"
        case ev.ToolCalled(name=name, input=value):
            said = f"{name} {show.compact(value)}"
        case ev.ToolSucceeded(output=value):
            said = show.compact(value)
        case ev.StepStreamed():
            said = "the provider has said all"
        case ev.StepEnded(finish=finish):
            said = f"finish: {finish}"
        case ev.StepInterrupted(cause=cause):
            said = f"cause: {cause}"
        case _:
            said = ""
    return show.plain(said)
