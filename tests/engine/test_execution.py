"""Executions on real stores: taken over while they live, kept waiting by others, stopped from elsewhere."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from engine import events as ev
from engine import step
from engine.acquiring import Acquired, acquire
from engine.api import Engine
from engine.endings import Lost
from engine.errors import SessionQuarantined, StoreIOError
from engine.limits import EngineConfig
from engine.ports import Tool, ToolContext
from engine.providers.script import parse_reply, says
from engine.records import InterruptAnswer, Phase
from engine.recovery import Recovery
from engine.system import RealClock, real_system
from tests.engine.real import (
    CONFIG,
    Model,
    assert_clean,
    claim_of,
    created,
    engine_on,
    lock_of,
    node_of,
    open_log,
    publish,
    stored_in,
    types_in,
    until,
    wait_for,
)

SES = "ses_a"
CALL = parse_reply([{"call": "c1", "tool": "work", "input": {}}, {"finish": "tool_calls"}], "call")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a new database may go."""
    return tmp_path / "engine.db"


@contextlib.asynccontextmanager
async def unswept(path: Path, model: Model, config: EngineConfig = CONFIG) -> AsyncIterator[Engine]:
    """An engine that sweeps only where the test says so: the sweep of its start could come in between."""

    async def never(recovery: Recovery) -> None:
        pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recovery, "run", never)
        async with engine_on(path, model, config=config) as engine:
            yield engine


class AheadClock(RealClock):
    """A wall clock that is ten minutes fast."""

    def now_ms(self) -> int:
        return super().now_ms() + 600_000


# --- taken over --------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_taken_over_while_it_lives(path: Path) -> None:
    """A node whose clock is far ahead takes over a live claim; the former owner's next write is refused by
    the fence, its execution ends as lost, and the log is the successor's."""
    model, endings = Model(says("the first"), held=True), []
    ahead = attrs.evolve(real_system(), clock=AheadClock())
    async with engine_on(path, model) as first:
        await first.create_session(session_id=SES)
        await first.send(SES, "x", input_id="inp_x")
        await model.wait_asked()

        async def join() -> None:
            endings.append(await first.execute(SES))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(join)
            async with engine_on(path, Model(says("the second")), system=ahead) as second:
                result = await second.wait_turn(SES, "inp_x")
                assert (result.how, result.text) == ("succeeded", "the second")
                await second.wait_idle()
                before = await stored_in(second.node.log, SES)
            model.open_door()
        # the slot looks once more after the loss, finds nothing to do, and keeps what it knew
        assert [type(ending) for ending in endings] == [Lost]
        assert await stored_in(first.node.log, SES) == before
    await assert_clean(path)


# --- a store that keeps it waiting -------------------------------------------------------------------


@pytest.mark.trio
async def test_busy_store(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Writes that time out on a foreign lock are tried again under the same claim: the turn ends well, and no
    event is lost or doubled."""
    model = Model(says("a b c"), held=True)
    async with engine_on(path, model, config=attrs.evolve(CONFIG, write_timeout_ms=20)) as engine:
        session = await engine.create_session(session_id=SES)
        await session.send("x", input_id="inp_x")
        await model.wait_asked()
        other = lock_of(path)
        model.open_door()
        with caplog.at_level(logging.INFO, "fencepost.execution"):
            await until(lambda: sum("busy" in record.message for record in caplog.records) >= 2)
        other.close()
        result = await session.wait_turn("inp_x")
        assert (result.how, result.text) == ("succeeded", "a b c")
        types = await types_in(engine, SES)
        assert all(types.count(type) == 1 for type in types), types
        assert engine.health().problems == []
    await assert_clean(path)


# --- interrupted from elsewhere ----------------------------------------------------------------------


@pytest.mark.trio
async def test_interrupt_from_another_node(path: Path) -> None:
    """An interrupt asked of another node reaches the owner at once; it settles, parks, and nobody resumes."""
    model = Model(held=True)
    async with engine_on(path, model) as owner, engine_on(path, Model()) as other:
        await owner.create_session(session_id=SES)
        await owner.send(SES, "x", input_id="inp_x")
        await model.wait_asked()
        await other.send(SES, "later", delivery="queue")
        assert await other.interrupt(SES) is InterruptAnswer.SETTLED
        assert await claim_of(other.node.log, SES) is None
        assert (await other.wait_turn(SES, "inp_x")).how == "interrupted"
        await owner.wait_idle()
        for engine in (owner, other):
            await engine.recovery.sweep()
            await engine.wait_idle()
        types = await types_in(other, SES)
        assert types.count("step.interrupted") == 1
        assert types[-1] == "execution.interrupted"
        assert await other.interrupt(SES) is InterruptAnswer.NOT_RUNNING
    await assert_clean(path)


async def _abandon(path: Path) -> None:
    """Make a session with pending input whose claim is held by a node that is no more."""
    got: list[Acquired] = []
    admitted = ev.InputAdmitted(
        session_id=SES, input_id="inp_x", kind="user", delivery="steer", payload={"text": "x"}
    )
    async with open_log(path) as log, trio.open_nursery() as nursery:
        await publish(log, created(SES), admitted)
        assert await acquire(node_of(log, nursery, "own_dead"), SES, None, got.append)


async def _expire(engine: Engine) -> None:
    row = await claim_of(engine.node.log, SES)
    assert row is not None
    await engine.node.log.store.write(lambda tx: tx.put_claim(attrs.evolve(row, expires_at=1)))


@pytest.mark.trio
async def test_interrupt_of_a_dead_owner(path: Path) -> None:
    """If the owner is dead, whoever takes over finishes the cancellation and doesn't resume the turn; the
    interrupt is answered truthfully, and the session takes new input."""
    model = Model()
    await _abandon(path)
    async with unswept(path, model) as engine:
        await _expire(engine)
        assert await engine.interrupt(SES) is InterruptAnswer.SETTLED
        assert await engine.interrupt(SES) is InterruptAnswer.NOT_RUNNING
        assert model.asked == []
        assert (await engine.run(SES, "again")).how == "succeeded"
    await assert_clean(path)


@pytest.mark.trio
async def test_interrupt_of_a_session_that_waits(path: Path) -> None:
    """An interrupt that finds no claim parks what waits: nothing admitted before it starts after the answer,
    until somebody sends again."""
    model = Model()
    admitted = ev.InputAdmitted(
        session_id=SES, input_id="inp_x", kind="user", delivery="queue", payload={"text": "x"}
    )
    async with unswept(path, model) as engine:
        await engine.create_session(session_id=SES)
        await publish(engine.node.log, admitted)  # as another node would, so nobody here is woken
        assert await engine.interrupt(SES) is InterruptAnswer.NOT_RUNNING
        await engine.recovery.sweep()
        assert await engine.execute(SES) is None
        assert model.asked == []
        assert (await engine.run(SES, "again")).how == "succeeded"
        assert (await engine.wait_turn(SES, "inp_x")).how == "succeeded"
    await assert_clean(path)


@pytest.mark.trio
async def test_interrupt_of_a_silent_owner(path: Path) -> None:
    """If the owner is silent though its claim is live, the interrupt is answered `requested` at its bound,
    and stays asked for: whoever takes over doesn't resume."""
    model = Model()
    await _abandon(path)
    config = attrs.evolve(CONFIG, interrupt_ms_max=20, write_timeout_ms=10)
    async with unswept(path, model, config) as engine:
        assert await engine.interrupt(SES) is InterruptAnswer.REQUESTED
        await _expire(engine)
        await engine.recovery.sweep()
        await engine.wait_idle()
        assert (await types_in(engine, SES))[-1] == "execution.interrupted"
        assert model.asked == []
    await assert_clean(path)


@pytest.mark.trio
async def test_expired_claims_dont_block_closing(path: Path) -> None:
    """An engine with an expired foreign claim in its file closes without waiting for it, and the sweep of the
    next one takes it up."""
    model = Model()
    await _abandon(path)
    async with unswept(path, model) as engine:
        await _expire(engine)
    assert model.asked == []
    async with engine_on(path, model) as engine:
        assert (await engine.wait_turn(SES, "inp_x")).how == "succeeded"
        started = [i for i in await stored_in(engine.node.log, SES) if i.type == "execution.started"]
        assert len(started) == 2
    await assert_clean(path)


# --- tools -------------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_tool_that_ignores_cancellation(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An interrupt doesn't wait for a tool past its grace: the call is settled as unknown, the tool is named
    in the log, and its late result is dropped."""
    go, running = trio.Event(), trio.Event()

    async def stubborn(context: ToolContext, value: dict[str, Any]) -> str:
        running.set()
        with trio.CancelScope(shield=True):
            await go.wait()
        return "too late"

    tool = Tool(name="work", description="", schema={"type": "object"}, handler=stubborn)
    config = attrs.evolve(CONFIG, tool_grace_ms=5)
    with caplog.at_level(logging.WARNING, "fencepost"):
        async with engine_on(path, Model(CALL, says("done")), tools=[tool], config=config) as engine:
            await engine.create_session(session_id=SES)
            await engine.send(SES, "x")
            await running.wait()
            assert await engine.interrupt(SES) is InterruptAnswer.SETTLED
            before = await stored_in(engine.node.log, SES)
            go.set()
            await until(functools.partial(_said, caplog, "a late tool result was dropped"))
            assert await stored_in(engine.node.log, SES) == before
            failed = next(item.event for item in before if item.type == "tool.failed")
            assert failed.outcome == "unknown"  # type: ignore[attr-defined]
            assert (await engine.run(SES, "again")).text == "done"
    assert _said(caplog, "a tool ignored its cancellation")
    await assert_clean(path)


def _said(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return any(text in record.message for record in caplog.records)


@pytest.mark.trio
async def test_store_that_fails_leaves_the_claim_to_recovery(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the store fails an execution for good, its claim is freed at once, and a sweep finishes the turn."""
    model = Model(says("one"), says("two"), held=True)
    async with unswept(path, model) as engine:
        await engine.create_session(session_id=SES)
        await engine.send(SES, "x", input_id="inp_x")
        await model.wait_asked()
        store, write = engine.node.log.store, engine.node.log.store.write

        async def broken(work: Any, after_commit: Any = None, *, label: str = "") -> Any:
            if label == "text.started":
                raise StoreIOError("the disk is broken")
            return await write(work, after_commit, label=label)

        monkeypatch.setattr(store, "write", broken)
        model.open_door()
        await engine.wait_idle(SES)
        row = await claim_of(engine.node.log, SES)
        assert row is not None
        assert (row.expires_at, row.phase) == (1, Phase.UNKNOWN)
        monkeypatch.undo()
        await engine.recovery.sweep()
        assert (await engine.wait_turn(SES, "inp_x")).text == "two"
        await wait_for(engine, SES, "execution.succeeded")
    await assert_clean(path)


@pytest.mark.trio
async def test_tool_with_a_broken_schema(path: Path) -> None:
    """A schema that looks right and can't be asked fails the call, and the turn goes on to its end."""

    async def work(context: ToolContext, value: dict[str, Any]) -> int:
        raise AssertionError("its input was never validated")

    async with engine_on(
        path,
        Model(CALL, says("done")),
        tools=[Tool(name="work", description="", schema={"$ref": "#/nowhere"}, handler=work)],
    ) as engine:
        session = await engine.create_session()
        with trio.fail_after(10):
            result = await session.run("x")
        assert (result.how, result.text) == ("succeeded", "done")
        assert (await types_in(engine, session.id)).count("tool.failed") == 1
    await assert_clean(path)


def _waits(engine: Engine) -> bool:
    """Whether somebody waits for news of the session, beside its own execution."""
    bells = engine.node.log.doorbells._bells.get("ses_a", {})
    return any(bell._rung.statistics().tasks_waiting for bell in bells.values())


@pytest.mark.trio
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_waiting_for_a_turn_that_ends_in_quarantine(
    path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    """Whoever waits for a turn, on whichever node, hears of the quarantine that ends it, though it writes no
    event; released, the session goes on."""

    def defect(*args: object) -> None:
        raise LookupError("a defect")

    model, errors = Model(held=True), []

    async def wait(engine: Engine) -> None:
        with pytest.raises(SessionQuarantined, match="a defect") as caught:
            await engine.wait_turn("ses_a", "inp_x")
        errors.append(caught.value)

    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(engine_on(path, model))
        session = await engine.create_session(session_id="ses_a")
        await session.send("x", input_id="inp_x")
        await model.wait_asked()
        other = await stack.enter_async_context(engine_on(path, Model())) if elsewhere else engine
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, other)
            await until(lambda: _waits(other))
            monkeypatch.setattr(step, "decide_all", defect)
            model.open_door()
        assert len(errors) == 1
        assert [row.session_id for row in await engine.quarantined()] == [session.id]
        monkeypatch.undo()
        await engine.release(session.id)
        assert (await session.wait_turn("inp_x")).how == "succeeded"
    await assert_clean(path)
