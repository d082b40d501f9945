"""The front door on a real store: its verbs, from admission to deletion."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from engine.api import Engine, Session
from engine.endings import Succeeded
from engine.errors import (
    InboxFull,
    InputConflict,
    SessionDeleted,
    SessionExists,
    SessionNotFound,
)
from engine.events import InputDeliveryChanged, InputResumed, Stored
from engine.ports import Tool, ToolContext
from engine.providers.script import parse_reply, says
from engine.records import InterruptAnswer
from tests.engine.real import (
    CONFIG,
    Model,
    assert_clean,
    claim_of,
    engine_on,
    stored_in,
    types_in,
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


async def _count(engine: Engine, session: Session, type: str) -> int:
    return (await types_in(engine, session.id)).count(type)


# --- turns -------------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_run(path: Path) -> None:
    """A turn with a tool runs to its end, the result carries its messages, and nothing is left to do."""

    async def work(context: ToolContext, value: dict[str, Any]) -> int:
        return 42

    async with engine_on(path, Model(CALL, says("it is 42")), tools=[tool(work)]) as engine:
        session = await engine.create_session(title="t")
        result = await session.run("how much?")
        assert (result.how, result.text) == ("succeeded", "it is 42")
        assert [message.role for message in result.messages] == ["assistant", "assistant"]
        await engine.wait_idle()
        assert engine.coordinator.active() == ()
        assert await claim_of(engine.node.log, session.id) is None
        assert (await session.messages())[-1].role == "assistant"
    await assert_clean(path)


@pytest.mark.trio
async def test_admission_is_idempotent(path: Path) -> None:
    """The same input id again is the same admission, also in the next engine; it runs once."""
    async with engine_on(path, Model()) as engine:
        session = await engine.create_session(session_id="ses_a")
        first = await session.send("one", input_id="inp_1")
        again = await session.send("two", input_id="inp_1")
        assert (first.created, again.created, again.seq) == (True, False, first.seq)
        assert (await session.wait_turn("inp_1")).how == "succeeded"
        other = await engine.create_session()
        with pytest.raises(InputConflict, match="inp_1"):
            await other.send("one", input_id="inp_1")
    async with engine_on(path, Model()) as engine:
        assert not (await engine.send("ses_a", "three", input_id="inp_1")).created
        await engine.wait_idle()
        assert (await types_in(engine, "ses_a")).count("input.promoted") == 1
    await assert_clean(path)


@pytest.mark.trio
async def test_concurrent_sends_of_one_id(path: Path) -> None:
    """Of many admissions of one id at once, exactly one is new."""
    admitted: list[bool] = []
    async with engine_on(path, Model()) as engine:
        session = await engine.create_session()

        async def send() -> None:
            admitted.append((await session.send("x", input_id="inp_1")).created)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(send)
        await session.wait_turn("inp_1")
        assert await _count(engine, session, "input.admitted") == 1
    assert sorted(admitted) == [False] * 9 + [True]


@pytest.mark.trio
async def test_inbox_full(path: Path) -> None:
    """Past `inbox_pending_max` a send is refused and changes nothing; once answered, there is room again."""
    model = Model(held=True)
    async with engine_on(path, model, config=attrs.evolve(CONFIG, inbox_pending_max=2)) as engine:
        session = await engine.create_session()
        await session.send("running")
        await model.wait_asked()
        for number in range(2):
            await session.send(str(number), delivery="queue")
        with pytest.raises(InboxFull):
            await session.send("too many", input_id="inp_late")
        model.open_door()
        await engine.wait_idle()
        assert (await session.send("now", input_id="inp_late")).created
        await engine.wait_idle()
        assert await _count(engine, session, "input.promoted") == 4
    await assert_clean(path)


@pytest.mark.trio
async def test_delivery(path: Path) -> None:
    """A steer joins the running turn, a queued input waits for its own, and one whose delivery is changed
    follows the new one; a cancelled one never runs."""
    model = Model(says("first"), says("second"), says("third"), held=True)
    async with engine_on(path, model) as engine:
        session = await engine.create_session()
        await session.send("start", input_id="inp_start")
        await model.wait_asked()
        await session.send("later", delivery="queue", input_id="inp_queue")
        await session.send("too", delivery="queue", input_id="inp_changed")
        await session.send("never", delivery="queue", input_id="inp_cancelled")
        assert await engine.change_delivery(session.id, "inp_changed", "steer")
        assert not await engine.change_delivery(session.id, "inp_changed", "steer")
        assert await engine.cancel_input(session.id, "inp_cancelled")
        assert not await engine.cancel_input(session.id, "inp_cancelled")
        with pytest.raises(InputConflict):
            await engine.cancel_input(session.id, "inp_unknown")
        model.open_door()
        assert (await session.wait_turn("inp_start")).text == "second"
        assert (await session.wait_turn("inp_queue")).text == "third"
        assert (await session.wait_turn("inp_cancelled")).how == "cancelled"
        await engine.wait_idle()
        promoted = [
            getattr(item.event, "input_id", None)
            for item in await stored_in(engine.node.log, session.id)
            if item.type == "input.promoted"
        ]
        assert promoted == ["inp_start", "inp_changed", "inp_queue"]
        changed = [i.event for i in await stored_in(engine.node.log, session.id)]
        assert sum(isinstance(event, InputDeliveryChanged) for event in changed) == 1
    await assert_clean(path)


@pytest.mark.trio
async def test_unknown_session(path: Path) -> None:
    """Every verb on a session that doesn't exist is `SessionNotFound`; creating one twice is refused."""
    async with engine_on(path) as engine:
        ghost = engine.session("ses_ghost")
        for call in (
            lambda: ghost.send("x"),
            lambda: ghost.run("x"),
            lambda: ghost.wait_turn("inp_x"),
            ghost.interrupt,
            ghost.resume,
            ghost.messages,
            lambda: engine.execute(ghost.id),
            lambda: engine.delete(ghost.id),
        ):
            with pytest.raises(SessionNotFound, match="ses_ghost"):
                await call()
        await engine.create_session(session_id="ses_a")
        with pytest.raises(SessionExists):
            await engine.create_session(session_id="ses_a")


# --- joining and waking ------------------------------------------------------------------------------


@pytest.mark.trio
async def test_joiners_share_a_run(path: Path) -> None:
    """Many callers of `execute` share one execution, and each learns how it ended."""
    model, endings = Model(held=True), []
    async with engine_on(path, model) as engine:
        session = await engine.create_session()
        await session.send("x")

        async def join() -> None:
            endings.append(await engine.execute(session.id))

        async with trio.open_nursery() as nursery:
            await model.wait_asked()
            for _ in range(5):
                nursery.start_soon(join)
            await trio.testing.wait_all_tasks_blocked()
            model.open_door()
        assert endings == [Succeeded()] * 5
        assert await _count(engine, session, "execution.started") == 1
        assert await engine.execute(session.id) is None


@pytest.mark.trio
async def test_wake_in_the_gap_before_idle(path: Path) -> None:
    """An input that is admitted while the execution's last commit is being announced isn't left behind."""
    rounds = 10
    engine_here: list[Engine] = []

    async def send_more(stored: Stored) -> None:
        # told by the execution itself, after its claim was cleared and before its slot goes idle
        if stored.type == "execution.succeeded" and len(model.asked) < rounds:
            await engine_here[0].send(stored.event.session_id, "more")

    model = Model()
    async with engine_on(
        path, model, listeners=[send_more], config=attrs.evolve(CONFIG, sweep_interval_ms=3_600_000)
    ) as engine:
        engine_here.append(engine)
        session = await engine.create_session()
        await session.send("x")
        await wait_for(engine, session.id, "execution.succeeded", count=rounds)
        await engine.wait_idle()
        assert await _count(engine, session, "input.promoted") == rounds
    await assert_clean(path)


@pytest.mark.trio
async def test_sends_that_race_with_going_idle(path: Path) -> None:
    """However sends and the ends of turns interleave, every input is answered without the sweep's help."""
    async with engine_on(path, Model(), config=attrs.evolve(CONFIG, sweep_interval_ms=3_600_000)) as engine:
        sessions = [await engine.create_session() for _ in range(4)]

        async def talk(session: Session) -> None:
            for number in range(12):
                await session.send(str(number))
                for _ in range(number):
                    await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for session in sessions:
                nursery.start_soon(talk, session)
        await engine.wait_idle()
        for session in sessions:
            assert await _count(engine, session, "input.promoted") == 12
    await assert_clean(path)


# --- interrupting, resuming, deleting ----------------------------------------------------------------


@pytest.mark.trio
async def test_interrupt_parks_and_resume_unparks(path: Path) -> None:
    """An interrupt settles the turn and parks what waits; a second one finds nothing; `resume` runs it."""
    model = Model(held=True)
    async with engine_on(path, model) as engine:
        session = await engine.create_session()
        await session.send("x", input_id="inp_x")
        await model.wait_asked()
        await session.send("later", delivery="queue", input_id="inp_later")
        assert await session.interrupt() is InterruptAnswer.SETTLED
        assert (await session.wait_turn("inp_x")).how == "interrupted"
        assert await session.interrupt() is InterruptAnswer.NOT_RUNNING
        await engine.wait_idle()
        await engine.recovery.sweep()
        assert len(model.asked) == 1
        model.open_door()
        assert await session.resume()
        assert not await session.resume()
        assert (await session.wait_turn("inp_later")).how == "succeeded"
        events = await stored_in(engine.node.log, session.id)
        assert sum(isinstance(item.event, InputResumed) for item in events) == 1
    await assert_clean(path)


@pytest.mark.trio
async def test_interrupts_at_once(path: Path) -> None:
    """Of many interrupts at once each is answered, one settlement is written, and the next run is reachable
    by an interrupt of its own."""
    model = Model(held=True)
    async with engine_on(path, model) as engine:
        session = await engine.create_session()
        for turn in (1, 2):
            await session.send("x")
            await model.wait_asked(turn)
            answers: list[InterruptAnswer] = []

            async def interrupt(answers: list[InterruptAnswer]) -> None:
                answers.append(await session.interrupt())

            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(interrupt, answers)
            assert InterruptAnswer.SETTLED in answers
            assert InterruptAnswer.REQUESTED not in answers
            assert await _count(engine, session, "step.interrupted") == turn
            assert await _count(engine, session, "execution.interrupted") == turn
    await assert_clean(path)


@pytest.mark.trio
async def test_delete(path: Path) -> None:
    """Deleting a running session stops it, cancels what waits, ends readers and waiters, and refuses more."""
    model = Model(held=True)
    async with engine_on(path, model) as engine:
        session = await engine.create_session()
        await session.send("x")
        await model.wait_asked()
        await session.send("later", delivery="queue", input_id="inp_later")
        hows: list[str] = []

        async def wait() -> None:
            hows.append((await session.wait_turn("inp_later")).how)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait_for, engine, session.id, "session.deleted")
            await engine.delete(session.id)
        assert hows == ["parked"]  # by the interrupt that comes first
        await engine.delete(session.id)
        for call in (lambda: session.send("y"), session.resume):
            with pytest.raises(SessionDeleted):
                await call()
        assert (await types_in(engine, session.id))[-1] == "session.deleted"
        assert await engine.execute(session.id) is None
    await assert_clean(path)


@pytest.mark.trio
async def test_waiting_for_input_that_is_parked_or_unknown(path: Path) -> None:
    """An input that waits for a person is answered at once, one the session doesn't have is refused."""
    model = Model(held=True)
    async with engine_on(path, model) as engine:
        session = await engine.create_session()
        await session.send("x")
        await model.wait_asked()
        await session.send("later", delivery="queue", input_id="inp_later")
        assert await session.interrupt() is InterruptAnswer.SETTLED
        assert (await session.wait_turn("inp_later")).how == "parked"
        with pytest.raises(InputConflict):
            await session.wait_turn("inp_nobodys")
