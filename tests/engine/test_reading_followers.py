"""Many followers of one session: each sees every event, once and in order, whenever it came."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio

from engine.api import Engine
from engine.errors import EngineClosed
from engine.events import Stored
from engine.providers.script import says
from engine.reading import Synced
from tests.engine.real import CONFIG, Model, engine_on, stored_in

FOLLOWERS = 1_000


@pytest.mark.trio
async def test_a_thousand_followers_each_see_every_event(tmp_path: Path) -> None:
    """A thousand followers of one session, from different places in its log, each see what is behind their
    place once and in order, with one mark where they had caught up; a tombstone ends them all."""
    async with engine_on(tmp_path / "many.db", Model(says("one"), says("two"))) as engine:
        session = await engine.create_session()
        await session.run("before they come")
        await engine.wait_idle()
        latest = (await engine.sequences([session.id]))[session.id]
        seen: dict[int, list[Stored | Synced]] = {number: [] for number in range(FOLLOWERS)}
        ready = 0
        all_ready = trio.Event()

        async def follow(number: int) -> None:
            nonlocal ready
            async with session.log(after=number % (latest + 2) - 1, follow=True) as reader:
                async for item in reader:
                    seen[number].append(item)
                    if isinstance(item, Synced):
                        ready += 1
                        if ready == FOLLOWERS:
                            all_ready.set()

        async with trio.open_nursery() as nursery:
            for number in range(FOLLOWERS):
                nursery.start_soon(follow, number)
            await all_ready.wait()
            await session.run("while they listen")
            await engine.wait_idle()
            await engine.delete(session.id)
        log = await stored_in(engine.node.log, session.id)
        assert log[-1].type == "session.deleted"
        for number, items in seen.items():
            after = number % (latest + 2) - 1
            assert [item for item in items if isinstance(item, Stored)] == log[after + 1 :]
            marks = [place for place, item in enumerate(items) if isinstance(item, Synced)]
            assert marks == [latest - after], "one mark, behind what had been there"


@pytest.mark.trio
async def test_followers_on_two_engines_see_one_log(tmp_path: Path) -> None:
    """Followers of the executing engine and of one that only looks on see the same events, and closing an
    engine ends its own followers with where they may read on."""
    path = tmp_path / "two.db"
    seen: dict[str, list[int]] = {"at work": [], "looking on": []}
    said: dict[str, str] = {}

    async def follow(who: str, engine: Engine) -> None:
        try:
            async with engine.log("ses_a", follow=True) as reader:
                async for item in reader:
                    if isinstance(item, Stored):
                        seen[who].append(item.seq)
        except EngineClosed as exc:
            said[who] = str(exc)

    async with trio.open_nursery() as nursery:
        async with (
            engine_on(path, Model()) as engine,
            engine_on(path, config=attrs.evolve(CONFIG, sweep_interval_ms=3_600_000)) as other,
        ):
            await engine.create_session(session_id="ses_a")
            nursery.start_soon(follow, "at work", engine)
            nursery.start_soon(follow, "looking on", other)
            await engine.run("ses_a", "hello")
            await engine.wait_idle()
            latest = (await engine.sequences(["ses_a"]))["ses_a"]
            while any(not each or each[-1] < latest for each in seen.values()):
                await trio.lowlevel.checkpoint()
    assert seen == {who: [*range(latest + 1)] for who in seen}
    assert said == dict.fromkeys(seen, f"the engine closed; read on from seq {latest} with another one")
