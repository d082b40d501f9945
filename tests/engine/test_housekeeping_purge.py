"""The purge of tombstones: what is erased, what stays, and what may come again."""

from __future__ import annotations

import pytest
import trio

from engine.errors import InputConflict, SessionDeleted, SessionNotFound
from engine.events import ExecutionStarted, Stored
from engine.testing import World, open_test_engine, run_test
from tests.engine.real import stored_in

SES = "ses_a"


def test_purge_erases_old_tombstones_only() -> None:
    """Only what was deleted before the given time is erased, with every row but its generation; the rest, and
    what is merely old, stays."""

    async def main() -> None:
        world = World()
        async with open_test_engine(world=world) as engine:
            for session_id in ("ses_old", "ses_edge", "ses_alive"):
                await engine.create_session(session_id=session_id)
                await engine.run(session_id, "hello")
            await engine.wait_idle()
            await engine.delete("ses_old")
            await trio.sleep(60)
            edge_ms = world.clock.now_ms()
            await engine.delete("ses_edge")
            assert await engine.purge(before_ms=edge_ms) == 1
            assert await engine.purge(before_ms=edge_ms) == 0
            assert [row.session_id for row in await engine.sessions()] == ["ses_alive", "ses_edge"]
            assert (await engine.sequences(["ses_old", "ses_edge"])).keys() == {"ses_edge"}
            assert await engine.purge(before_ms=edge_ms + 1) == 1
            read = world.database.read
            assert read(lambda tx: tx.events("ses_old", -1, 10)) == []
            assert read(lambda tx: tx.inputs("ses_old")) == []
            assert read(lambda tx: tx.generation("ses_old")) == 1
            assert (await engine.run("ses_alive", "still there?")).how == "succeeded"

    run_test(main)


def test_generations_go_on_after_a_purge() -> None:
    """A session that is created again under a purged id is another one, and its generations go on."""

    async def main() -> None:
        world = World()
        async with open_test_engine(world=world) as engine:
            await engine.create_session(session_id=SES)
            await engine.send(SES, "hello", input_id="inp_1")
            await engine.wait_turn(SES, "inp_1")
            await engine.wait_idle()
            await engine.delete(SES)
            with pytest.raises(SessionDeleted):
                await engine.send(SES, "hello")
            assert await engine.purge(before_ms=world.clock.now_ms() + 1) == 1
            await engine.create_session(session_id=SES)
            with pytest.raises(InputConflict):
                await engine.wait_turn(SES, "inp_1")
            assert (await engine.send(SES, "hello", input_id="inp_1")).created
            await engine.wait_turn(SES, "inp_1")
            await engine.wait_idle()
            starts = [s.event for s in await stored_in(engine.node.log, SES)]
            assert [e.generation for e in starts if isinstance(e, ExecutionStarted)] == [2]

    run_test(main)


def test_a_follower_ends_with_the_tombstone_and_finds_nothing_after_the_purge() -> None:
    """A reader at the tombstone ended; one that begins after the purge is told that there is no session."""

    async def main() -> None:
        world = World()
        async with open_test_engine(world=world) as engine:
            session = await engine.create_session()
            seen: list[str] = []

            async def follow() -> None:
                async with session.log(follow=True) as reader:
                    async for item in reader:
                        if isinstance(item, Stored):
                            seen.append(item.type)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow)
                await trio.sleep(1)
                await engine.delete(session.id)
            assert seen == ["session.created", "session.deleted"]
            await engine.purge(before_ms=world.clock.now_ms() + 1)
            with pytest.raises(SessionNotFound):
                await session.messages()

    run_test(main)


def test_purge_finds_tombstones_beyond_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sessions there are, every tombstone is found once."""
    monkeypatch.setattr("engine.housekeeping.PAGE", 3)

    async def main() -> None:
        world = World()
        async with open_test_engine(world=world) as engine:
            for number in range(10):
                session = await engine.create_session(session_id=f"ses_{number}")
                if number % 3:
                    await engine.delete(session.id)
            assert await engine.purge(before_ms=world.clock.now_ms() + 1) == 6
            assert [row.session_id for row in await engine.sessions()] == [f"ses_{n}" for n in (0, 3, 6, 9)]

    run_test(main)
