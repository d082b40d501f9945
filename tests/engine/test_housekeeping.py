"""Quarantine: what leads into it, what lifts it, and who hears of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from engine import transactions
from engine.api import Engine
from engine.endings import Quarantined
from engine.errors import (
    NotQuarantined,
    SessionDeleted,
    SessionNotFound,
    SessionQuarantined,
    StoreIOError,
    UnknownEvent,
)
from engine.events import ExecutionStarted, StepInterrupted, Stored
from engine.providers.script import Finish, Reply, Stall, Text, reply, says
from engine.providers.scripted import ScriptedProvider
from engine.records import RecoveryRow
from engine.testing import World, crash, open_test_engine, run_test, verify
from tests.engine.damage import DAMAGES, damage, damage_in_place, mend
from tests.engine.real import stored_in, types_in

SES = "ses_a"
DAY_MS = 86_400_000
STALLING = reply(Text(text="Wait"), Stall(stall_ms=DAY_MS), Finish())


def model(world: World, *replies: Reply) -> ScriptedProvider:
    return ScriptedProvider(world.clock, replies)


async def crash_in_mid_step(world: World, *others: str) -> None:
    """Leave sessions whose node died while a step of each was open."""
    async with open_test_engine(world=world, provider=model(world, STALLING), check=False) as engine:
        for session_id in (SES, *others):
            await engine.create_session(session_id=session_id)
            await engine.send(session_id, "hello", input_id=f"inp_{session_id}")
        await trio.sleep(1)
        crash(engine)


async def quarantined_in(engine: Engine) -> RecoveryRow:
    """The one session that is in quarantine, once it is."""
    while not (found := await engine.quarantined()):
        await trio.sleep(1)
    (row,) = found
    return row


# --- into quarantine ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("claimed", [True, False], ids=["taken over", "acquired"])
def test_whatever_cant_be_read_is_quarantined_with_its_place(how: str, claimed: bool) -> None:
    """However an event is damaged, the session is set aside with the reason, its claim is gone, and whoever
    waits for the turn hears of it; discarding it works."""

    async def main() -> None:
        world = World()
        if claimed:
            await crash_in_mid_step(world)
        async with open_test_engine(world=world, provider=model(world, says("Done.")), check=False) as engine:
            if not claimed:
                await engine.create_session(session_id=SES)
            damage(world.database.connection, SES, how)
            if not claimed:
                await engine.send(SES, "hello", input_id="inp_ses_a")
            row = await quarantined_in(engine)
            assert row.session_id == SES
            assert row.recovery_error is not None
            seq = next(s.seq for s in verify(world)[SES].unreadable)
            assert f"{SES} seq {seq}" in row.recovery_error
            assert world.database.read(lambda tx: tx.claims("", 10)) == []
            assert isinstance(await engine.execute(SES), Quarantined)
            await engine.discard(SES)
            assert await engine.quarantined() == []
            assert world.database.read(lambda tx: tx.recovery(SES)) is None
            with pytest.raises(SessionDeleted):
                await engine.send(SES, "anybody?")
        assert verify(world)[SES].breaches == ()

    run_test(main)


def test_a_claim_that_cant_be_read_is_no_hindrance_to_discarding() -> None:
    """A claim in a phase that nobody knows goes with the quarantine, so its session can be discarded."""

    async def main() -> None:
        world = World()
        await crash_in_mid_step(world)
        world.database.connection.execute("UPDATE execution_claim SET phase = 'dancing'")
        async with open_test_engine(world=world, check=False) as engine:
            assert isinstance(await engine.execute(SES), Quarantined)
            row = await quarantined_in(engine)
            assert "unknown phase 'dancing'" in (row.recovery_error or "")
            await engine.discard(SES)
            assert (await types_in(engine, SES))[-1] == "session.deleted"

    run_test(main)


def test_a_quarantine_that_cant_be_written_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the store fails just then, the defect is said aloud, the claim is freed, and whoever takes it up
    next sets the session aside."""
    whole, failures = transactions.quarantine, [StoreIOError("a bad disk")]

    def failing(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return whole(*arguments)

    monkeypatch.setattr(transactions, "quarantine", failing)

    async def main() -> None:
        world = World()
        await crash_in_mid_step(world)
        damage(world.database.connection, SES)
        async with open_test_engine(world=world, check=False) as engine:
            row = await quarantined_in(engine)
            assert "nonsense" in (row.recovery_error or "")
            assert row.takeovers == 2
            assert world.clock.monotonic() < 60, "nobody waited for a second lease"

    run_test(main)
    (said,) = [record.getMessage() for record in caplog.records if "a bad disk" in record.getMessage()]
    assert said.startswith("the quarantine for a defect (UnknownEvent: unknown event nonsense")


def test_a_waiter_hears_of_the_quarantine() -> None:
    """Who waits for a turn hears that its session was quarantined, though no event says so; and so does who
    comes later, of the damage itself."""

    async def main() -> None:
        world, heard = World(), list[str]()
        await crash_in_mid_step(world)

        async def dawdle(stored: Stored) -> None:
            await trio.sleep(1)  # the waiter has read all there is before the defect is met

        async with open_test_engine(world=world, listeners=[dawdle], check=False) as engine:

            async def wait() -> None:
                with pytest.raises(SessionQuarantined, match="nonsense"):
                    await engine.wait_turn(SES, "inp_ses_a")
                heard.append("the waiter")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.sleep(1)
                damage_in_place(world.database.connection, SES, 1)  # which the waiter has read long since
                await quarantined_in(engine)
                await trio.sleep(1)
                assert heard == ["the waiter"]
            with pytest.raises(UnknownEvent, match="nonsense"):
                await engine.wait_turn(SES, "inp_ses_a")

    run_test(main)


def test_a_bystander_doesnt_quarantine_what_another_node_executes() -> None:
    """A node that only rang for a session which another one holds leaves the defect to that one."""

    async def main() -> None:
        world = World()
        async with open_test_engine(world=world, provider=model(world, STALLING), check=False) as owner:
            await owner.create_session(session_id=SES)
            await owner.send(SES, "hello")
            await trio.sleep(1)
            async with open_test_engine(world=world, check=False) as bystander:
                damage(world.database.connection, SES, "a broken start of a step")
                await bystander.execute(SES)
                assert await bystander.quarantined() == []
                (claim,) = world.database.read(lambda tx: tx.claims("", 10))
                assert claim.owner_id == owner.node.owner_id
            assert owner.coordinator.active() == (SES,)

    run_test(main)


# --- out of it ---------------------------------------------------------------------------------------


def test_what_was_mended_goes_on_where_it_was() -> None:
    """Released after its log was mended, a session settles the step that was open as unknown, goes on with
    the turn, and nothing reminds of the quarantine."""

    async def main() -> None:
        world = World()
        await crash_in_mid_step(world)
        damage(world.database.connection, SES)
        async with open_test_engine(world=world, provider=model(world, says("Done.")), check=False) as engine:
            before = await quarantined_in(engine)
            assert before.takeovers == 1
            mend(world.database.connection, SES)
            await engine.release(SES)
            lifted = await engine.node.log.store.read(lambda tx: tx.recovery(SES))
            assert lifted is not None
            assert (lifted.recovery_error, lifted.takeovers, lifted.wake_pending) == (None, 0, True)
            turn = await engine.wait_turn(SES, "inp_ses_a")
            assert (turn.how, turn.text) == ("succeeded", "Done.")
            await engine.wait_idle()
            stored = await stored_in(engine.node.log, SES)
            assert [i.event.cause for i in stored if isinstance(i.event, StepInterrupted)] == ["unknown"]
            assert [i.event.generation for i in stored if isinstance(i.event, ExecutionStarted)] == [1, 2, 3]
            assert await engine.node.log.store.read(lambda tx: tx.recovery(SES)) is None
        assert verify(world)[SES].ok
        assert verify(world)[SES].pending == ()

    run_test(main)


def test_a_release_is_taken_up_by_any_node() -> None:
    """What was released while no engine could run it is found by the next sweep, input or not."""

    async def main() -> None:
        world = World()
        await crash_in_mid_step(world)
        damage(world.database.connection, SES)
        async with open_test_engine(world=world, check=False) as engine:
            await quarantined_in(engine)
            mend(world.database.connection, SES)
            engine.coordinator.wake = lambda *args: None  # type: ignore[method-assign,assignment]
            await engine.release(SES)
        assert [each.kind for each in verify(world)[SES].pending] == ["released"]
        async with open_test_engine(world=world, provider=model(world, says("Done."))) as engine:
            assert (await engine.wait_turn(SES, "inp_ses_a")).text == "Done."
        assert verify(world)[SES].pending == ()

    run_test(main)


def test_a_second_quarantine_starts_counting_anew() -> None:
    """Released and found damaged again, it is quarantined again, each time with a fresh count."""

    async def main() -> None:
        world = World()
        await crash_in_mid_step(world)
        damage(world.database.connection, SES)
        async with open_test_engine(world=world, check=False) as engine:
            first = await quarantined_in(engine)
            await engine.release(SES)
            again = await quarantined_in(engine)
            assert again.recovery_error == first.recovery_error
            assert (first.takeovers, again.takeovers) == (1, 0)
            assert again.execution_id != first.execution_id
            assert (await types_in_raw(world)).count("execution.started") == 3

    run_test(main)


async def types_in_raw(world: World) -> Sequence[str]:
    return [row.type for row in world.database.read(lambda tx: tx.events(SES, -1, 1_000))]


def test_only_what_is_in_quarantine_can_leave_it() -> None:
    """`release` and `discard` refuse a healthy, an unknown and a deleted session, and change nothing."""

    async def main() -> None:
        async with open_test_engine() as engine:
            session = await engine.create_session()
            await session.run("hello")
            await engine.wait_idle()
            before = await types_in(engine, session.id)
            for call in (engine.release, engine.discard):
                with pytest.raises(NotQuarantined, match=session.id):
                    await call(session.id)
            assert await types_in(engine, session.id) == before
            with pytest.raises(SessionNotFound):
                await engine.release("ses_ghost")
            with pytest.raises(NotQuarantined):
                await engine.discard("ses_ghost")
            await engine.delete(session.id)
            with pytest.raises(SessionDeleted):
                await engine.release(session.id)

    run_test(main)


def test_quarantined_sessions_are_listed_by_id() -> None:
    """`quarantined` lists them in the order of their ids, as many as asked for."""

    async def main() -> None:
        world = World()
        await crash_in_mid_step(world, "ses_c", "ses_b")
        for session_id in (SES, "ses_c", "ses_b"):
            damage(world.database.connection, session_id)
        async with open_test_engine(world=world, check=False) as engine:
            while len(await engine.quarantined()) < 3:
                await trio.sleep(1)
            assert [row.session_id for row in await engine.quarantined()] == [SES, "ses_b", "ses_c"]
            assert [row.session_id for row in await engine.quarantined(limit=2)] == [SES, "ses_b"]

    run_test(main)
