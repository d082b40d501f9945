"""Hints of what changed: coalesced, bounded, and never a substitute for looking."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from engine.changes import Changed, ChangeFeed, Hint, SweepRequired
from engine.events import SessionRenamed, Stored
from engine.system import RealClock
from engine.testing import World, open_test_engine, run_test
from tests.engine.real import engine_on


def event(session_id: str, seq: int) -> Stored:
    renamed = SessionRenamed(session_id=session_id, title="t")
    return Stored(event_id=f"{session_id}_{seq}", seq=seq, created=0, execution_id=None, event=renamed)


async def all_now(hints: object) -> list[Hint]:
    found: list[Hint] = []
    with trio.move_on_after(1):
        async for hint in hints:  # type: ignore[attr-defined]
            found.append(hint)
    return found


# --- one channel -------------------------------------------------------------------------------------


def test_a_sweep_comes_first() -> None:
    """Whoever begins to listen is told to look at everything once; what changed before that needs no hint."""

    async def main() -> None:
        feed = ChangeFeed(RealClock())
        with feed.subscribe(10) as hints:
            feed.note([event("ses_a", 3)])
            assert await all_now(hints) == [SweepRequired()]
            feed.note([event("ses_a", 4)])
            assert await all_now(hints) == [Changed("ses_a", 4)]

    run_test(main)


def test_hints_of_one_session_are_one_hint() -> None:
    """However much is committed between two looks, each session is named once, with its latest seq, longest
    waiting first."""

    async def main() -> None:
        feed = ChangeFeed(RealClock())
        with feed.subscribe(10) as hints:
            assert await all_now(hints) == [SweepRequired()]
            feed.note([event("ses_b", 0), event("ses_b", 1)])
            feed.note([event("ses_a", 7)])
            feed.note([event("ses_b", 2)])
            assert await all_now(hints) == [Changed("ses_b", 2), Changed("ses_a", 7)]
            assert await all_now(hints) == []

    run_test(main)


def test_too_many_sessions_become_a_sweep() -> None:
    """Past `keys_max` changed sessions one call to sweep replaces the hints, and afterwards hints go on."""

    async def main() -> None:
        feed = ChangeFeed(RealClock())
        with feed.subscribe(3) as hints, feed.subscribe(4) as roomy:
            for channel in (hints, roomy):
                assert await all_now(channel) == [SweepRequired()]
            for number in range(4):
                feed.note([event(f"ses_{number}", number)])
            assert await all_now(hints) == [SweepRequired()]
            assert await all_now(roomy) == [Changed(f"ses_{number}", number) for number in range(4)]
            feed.note([event("ses_9", 1)])
            assert await all_now(hints) == [Changed("ses_9", 1)]

    run_test(main)


def test_a_waiting_listener_wakes_for_each_kind_of_news() -> None:
    """Who waits is woken by a change, by news from elsewhere, and by the end."""

    async def main() -> None:
        feed, heard = ChangeFeed(RealClock()), list[Hint]()
        with feed.subscribe(3) as hints:

            async def listen() -> None:
                async for hint in hints:
                    heard.append(hint)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(listen)
                for ring in (lambda: feed.note([event("ses_a", 1)]), feed.sweep, feed.close):
                    await trio.testing.wait_all_tasks_blocked()
                    ring()
        assert heard == [SweepRequired(), Changed("ses_a", 1), SweepRequired()]
        with feed.subscribe(3) as late:
            feed.note([event("ses_a", 2)])
            assert await all_now(late) == [SweepRequired()]

    run_test(main)


def test_who_left_hears_nothing_and_keeps_nothing() -> None:
    """A channel ends with its block: nothing is kept for it."""

    async def main() -> None:
        feed = ChangeFeed(RealClock())
        with feed.subscribe(3) as hints:
            assert await all_now(hints) == [SweepRequired()]
        feed.note([event("ses_a", 1)])
        assert await all_now(hints) == []

    run_test(main)


NOTES = st.lists(
    st.one_of(
        st.lists(st.sampled_from("abcde"), min_size=1, max_size=3),  # a commit of events of these sessions
        st.just("read"),
        st.just("elsewhere"),
    ),
    max_size=40,
)


@given(NOTES, st.integers(1, 5))
def test_who_looks_at_every_hint_misses_nothing(notes: Sequence[list[str] | str], keys_max: int) -> None:
    """Whatever happens between two looks, whoever acts on each hint knows the latest seq of every session
    once there are no more hints, and a hint never runs ahead of the log."""

    async def main() -> None:
        feed, latest, known = ChangeFeed(RealClock()), dict[str, int](), dict[str, int]()

        async def look(hints: object) -> None:
            for hint in await all_now(hints):
                if isinstance(hint, SweepRequired):
                    known.update(latest)
                else:
                    assert hint.seq <= latest[hint.session_id]
                    known[hint.session_id] = hint.seq

        with feed.subscribe(keys_max) as hints:
            for note in [*notes, "read"]:
                if note == "read":
                    await look(hints)
                    assert known == latest
                elif note == "elsewhere":
                    latest["z"] = latest.get("z", -1) + 1
                    feed.sweep()
                else:
                    for name in note:
                        latest[name] = latest.get(name, -1) + 1
                    feed.note([event(name, latest[name]) for name in note])

    run_test(main)


# --- an engine's -------------------------------------------------------------------------------------


def test_an_engine_hints_at_its_own_commits_and_at_those_of_others() -> None:
    """A turn is hinted at with its latest seq; what another engine commits is a call to sweep, after which
    `sequences` tells what there is. Closing the engine ends the hints."""

    async def main() -> None:
        world = World()
        async with open_test_engine(world=world) as engine, open_test_engine(world=world) as other:
            session = await engine.create_session()
            with engine.changes() as hints:
                assert await all_now(hints) == [SweepRequired()]
                await session.run("hello")
                await engine.wait_idle()
                (hint,) = await all_now(hints)
                assert hint == Changed(session.id, (await engine.sequences([session.id]))[session.id])
                await other.send(session.id, "hello")
                await other.wait_idle()
                assert set(await all_now(hints)) == {SweepRequired()}
                found = await engine.sequences(["ses_ghost", session.id])
                assert found.keys() == {session.id}
                assert found[session.id] > hint.seq
                await engine.close()
                assert await all_now(hints) == []

    run_test(main)


@pytest.mark.trio
async def test_another_connection_is_noticed_on_a_file(tmp_path: Path) -> None:
    """On a real file, too, a commit of another engine is hinted at, though nobody names its session."""
    path = tmp_path / "two.db"
    async with engine_on(path) as engine, engine_on(path) as other:
        with engine.changes() as hints:
            assert await anext(hints) == SweepRequired()
            session = await other.create_session()
            assert await anext(hints) == SweepRequired()
            assert (await engine.sequences([session.id])) == {session.id: 0}
