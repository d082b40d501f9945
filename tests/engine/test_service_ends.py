"""How an engine's block ends on a real store: what reaches the host, and what is left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from engine.api import Session
from engine.errors import (
    EngineClosed,
    EngineFailed,
)
from engine.ports import Tool, ToolContext
from engine.providers.script import parse_reply
from tests.engine.real import (
    CONFIG,
    Model,
    assert_clean,
    engine_on,
    lock_of,
    types_in,
    until,
    wait_for,
)

CALL = parse_reply([{"call": "c1", "tool": "work", "input": {}}, {"finish": "tool_calls"}], "call")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a new database may go."""
    return tmp_path / "engine.db"


def tool(handler: Callable[[ToolContext, dict[str, Any]], Awaitable[Any]], **more: Any) -> Tool:
    """A tool named `work`."""
    return Tool(name="work", description="", schema=more.get("schema", {"type": "object"}), handler=handler)


# --- what reaches the host ---------------------------------------------------------------------------


class HostError(Exception):
    """Raised by the host inside its block."""


@pytest.mark.parametrize(
    "error",
    [
        HostError("plain"),
        ExceptionGroup("two", [HostError("a"), ValueError("b")]),
        KeyboardInterrupt(),
        SystemExit(3),
        BaseExceptionGroup("mixed", [KeyboardInterrupt(), HostError("c")]),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("busy", [False, True])
def test_host_error_leaves_as_it_is(path: Path, error: BaseException, busy: bool) -> None:
    """What the host raises inside the block leaves it as the very same object, after a hand-over."""

    async def main() -> None:
        model = Model(held=True)
        config = attrs.evolve(CONFIG, shutdown_grace_ms=0)
        async with engine_on(path, model, config=config) as engine:
            session = await engine.create_session(session_id="ses_a")
            if busy:
                await session.send("x")
                await model.wait_asked()
            raise error

    async def after() -> None:
        await assert_clean(path, at_rest=not busy)

    with pytest.raises(type(error)) as caught:
        trio.run(main)
    assert caught.value is error
    trio.run(after)


@pytest.mark.trio
async def test_host_error_under_a_cancellation(path: Path) -> None:
    """An error that the host raises while it is cancelled isn't eaten by the cancellations of the engine."""
    config = attrs.evolve(CONFIG, shutdown_grace_ms=0)
    model = Model(held=True)
    came_out: list[BaseException] = []
    with trio.CancelScope() as scope:
        try:
            async with engine_on(path, model, config=config) as engine:
                await engine.create_session(session_id="ses_a")
                await engine.send("ses_a", "x")
                await model.wait_asked()
                scope.cancel()
                raise HostError
        except BaseException as exc:
            came_out.append(exc)
    assert [type(exc) for exc in came_out] == [HostError]
    await assert_clean(path, at_rest=False)


class Crash(BaseException):
    """Nothing that the engine's machinery knows how to take."""


@pytest.mark.trio
async def test_machinery_crash_is_one_error(path: Path) -> None:
    """A crash of the engine's own machinery cancels the host's block and arrives as one `EngineFailed`, with
    the reason as its cause; what ran is handed over."""
    model = Model(held=True)

    async def crash() -> None:
        raise Crash("machinery")

    with pytest.raises(EngineFailed, match="machinery") as caught:  # noqa: PT012
        async with engine_on(path, model) as engine:
            session = await engine.create_session(session_id="ses_a")
            await session.send("x")
            await model.wait_asked()
            engine.node.tool_nursery.start_soon(crash)
            await trio.sleep_forever()
    assert isinstance(caught.value.__cause__, Crash)
    await assert_clean(path, at_rest=False)
    async with engine_on(path) as engine:
        assert "execution.handed_over" in await types_in(engine, "ses_a")
        await wait_for(engine, "ses_a", "execution.succeeded")
    await assert_clean(path)


@pytest.mark.trio
async def test_host_cancellation_hands_over(path: Path) -> None:
    """Cancelling the host's block settles and hands over what runs, and the next engine ends the turn."""
    model = Model(held=True)
    config = attrs.evolve(CONFIG, shutdown_grace_ms=0)
    with trio.CancelScope() as scope:
        async with engine_on(path, model, config=config) as engine:
            session = await engine.create_session(session_id="ses_a")
            await session.send("x", input_id="inp_x")
            await model.wait_asked()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    async with engine_on(path) as engine:
        result = await engine.wait_turn("ses_a", "inp_x")
        assert (result.how, result.text) == ("succeeded", "hello")
        types = await types_in(engine, "ses_a")
        assert types.count("execution.handed_over") == 1
        assert types.count("execution.started") == 2
    await assert_clean(path)


# --- closing -----------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_closed_engine_refuses_every_verb(path: Path) -> None:
    """After the block every verb says `EngineClosed`, and live subscriptions are at their end."""
    async with engine_on(path) as engine:
        session = await engine.create_session()
        await session.run("x")
    for call in (
        engine.create_session,
        lambda: session.send("x"),
        lambda: session.run("x"),
        lambda: session.wait_turn("inp_x"),
        session.interrupt,
        session.resume,
        session.messages,
        engine.sessions,
        engine.quarantined,
        lambda: engine.sequences([session.id]),
        lambda: engine.execute(session.id),
        lambda: engine.delete(session.id),
        lambda: engine.cancel_input(session.id, "inp_x"),
        lambda: engine.change_delivery(session.id, "inp_x", "queue"),
    ):
        with pytest.raises(EngineClosed):
            await call()
    with engine.live() as events:
        assert [item async for item in events] == []


@pytest.mark.trio
async def test_waiters_of_a_closing_engine(path: Path) -> None:
    """Whoever waits for a turn or follows a log when the engine closes gets `EngineClosed`."""
    model, errors = Model(held=True), []

    async def wait(session: Session) -> None:
        with pytest.raises(EngineClosed) as caught:
            await session.run("x")
        errors.append(caught.value)

    async with trio.open_nursery() as nursery:
        async with engine_on(path, model, config=attrs.evolve(CONFIG, shutdown_grace_ms=0)) as engine:
            for _ in range(5):
                nursery.start_soon(wait, await engine.create_session())
            await model.wait_asked(5)
    assert len(errors) == 5
    await assert_clean(path, at_rest=False)


@pytest.mark.trio
async def test_claim_that_is_acquired_while_closing(path: Path) -> None:
    """A claim whose commit comes through after the shutdown began is handed over at once: no step begins."""
    model = Model(held=True)
    async with engine_on(path, model, config=attrs.evolve(CONFIG, sweep_interval_ms=3_600_000)) as engine:
        session = await engine.create_session(session_id="ses_a")
        await until(lambda: not engine.coordinator.active())
        other = lock_of(path)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.send, "x")
            await until(lambda: engine.node.log.store.health().queued == 1)
            engine.coordinator.wake(session.id)
            await until(lambda: engine.node.log.store.health().queued == 2)
            nursery.start_soon(engine.close)
            await trio.testing.wait_all_tasks_blocked()
            other.close()
    assert model.asked == []
    async with engine_on(path, Model()) as engine:
        await wait_for(engine, "ses_a", "execution.succeeded")
    await assert_clean(path)


@pytest.mark.trio
async def test_leaving_leaves_nothing_behind(path: Path) -> None:
    """Over many engines on one file no thread, descriptor or task is left, however each one ended."""

    def left() -> tuple[list[str], int]:
        gc.collect()
        writers = [one.name for one in threading.enumerate() if one.name.startswith("fencepost")]
        return writers, len(os.listdir("/proc/self/fd"))

    def tasks() -> int:
        return trio.lowlevel.current_statistics().tasks_living

    async def cycle(number: int, scope: trio.CancelScope) -> None:
        model = Model(held=number % 2 == 0)
        config = attrs.evolve(CONFIG, shutdown_grace_ms=0)
        async with engine_on(path, model, config=config) as engine:
            session = await engine.create_session()
            with engine.live() as _:
                await session.send("x")
                await model.wait_asked()
                async with session.log(follow=True) as reader:
                    await anext(reader)
                if number % 3 == 1:
                    raise HostError
                if number % 3 == 2:
                    scope.cancel()
                    await trio.lowlevel.checkpoint()

    async def contained(number: int) -> None:
        with trio.CancelScope() as scope, contextlib.suppress(HostError):
            await cycle(number, scope)

    for number in range(6):
        await contained(number)
    before, living = left(), tasks()
    for number in range(18):
        await contained(number)
    assert before[0] == []
    assert left() == before
    assert tasks() == living
