"""Replaying: a log that was stored elsewhere continues the one that is here exactly, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio

from engine import events as ev
from engine.api import Engine
from engine.changes import Changed, SweepRequired
from engine.errors import ReplayDiverged, UnknownEvent
from engine.events import Stored
from engine.providers.script import Finish, Stall, Text, reply, says
from engine.providers.scripted import ScriptedProvider
from engine.testing import CountedIds, World, open_test_engine, run_test, verify
from tests.engine.real import created, stored_in

SES = "ses_a"


class Elsewhere(CountedIds):
    """Ids that nobody draws here."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self._place = place

    def new(self, prefix: str) -> str:
        return f"{super().new(prefix)}_{self._place}"


async def a_log(session_id: str = SES, *, prefix: str = "src") -> list[Stored]:
    """The log of a session with two turns, one of them interrupted, that nobody executes any more."""
    world = World(ids=Elsewhere(prefix))
    slow = reply(Text(text="Wait"), Stall(stall_ms=60_000), Finish())
    provider = ScriptedProvider(world.clock, [says("Done."), slow])
    async with open_test_engine(world=world, provider=provider) as engine:
        await engine.create_session(session_id=session_id)
        await engine.send(session_id, "one", input_id=f"{prefix}_one")
        await engine.wait_turn(session_id, f"{prefix}_one")
        await engine.wait_idle()
        await engine.send(session_id, "two", input_id=f"{prefix}_two")
        await engine.send(session_id, "three", input_id=f"{prefix}_three", delivery="queue")
        await trio.sleep(1)
        await engine.interrupt(session_id)
        found = await stored_in(engine.node.log, session_id)
    return [attrs.evolve(item, event_id=f"{prefix}_{item.seq}") for item in found]


def rows(world: World) -> Any:
    """Everything in the database that a replay could change."""
    connection = world.database.connection
    tables = ("event", "sequence", "session", "input", "session_fence", "execution_claim", "recovery")
    return {table: list(connection.execute(f"SELECT * FROM {table}")) for table in tables}


# --- what is accepted --------------------------------------------------------------------------------


def test_a_whole_log_comes_over() -> None:
    """A replayed log reads as it was stored, with all that is folded from it; whoever runs the session next
    goes on from there, in the next generation."""

    async def main() -> None:
        log = await a_log()
        world = World()
        async with open_test_engine(world=world) as engine:
            assert await engine.replay(log) == len(log)
            assert await stored_in(engine.node.log, SES) == log
            found = verify(world)[SES]
            assert (found.ok, found.pending) == (True, ())
            (row,) = await engine.sessions()
            assert row.status == "interrupted"
            assert await engine.resume(SES)
            assert (await engine.wait_turn(SES, "src_three")).how == "succeeded"
            await engine.wait_idle()
            stored = await stored_in(engine.node.log, SES)
            starts = [item.event for item in stored if isinstance(item.event, ev.ExecutionStarted)]
            assert [start.generation for start in starts] == [1, 2, 3]

    run_test(main)


def test_what_is_there_already_is_accepted_silently() -> None:
    """Replaying twice, or in pieces that overlap, adds each event once and tells how many were new."""

    async def main() -> None:
        log = await a_log()
        async with open_test_engine(check=False) as engine:
            assert await engine.replay(log[:4]) == 4
            assert await engine.replay(log[:4]) == 0
            assert await engine.replay(log[2:7]) == 3
            assert await engine.replay([]) == 0
            assert await engine.replay(log) == len(log) - 7
            assert await stored_in(engine.node.log, SES) == log

    run_test(main)


def test_several_sessions_come_in_one_transaction() -> None:
    """Events of several sessions may be mixed, each session's own in order."""

    async def main() -> None:
        one, two = await a_log(), await a_log("ses_b", prefix="other")
        mixed = [item for pair in zip(one, two, strict=True) for item in pair]
        async with open_test_engine() as engine:
            assert await engine.replay(mixed) == len(mixed)
            assert await stored_in(engine.node.log, SES) == one
            assert await stored_in(engine.node.log, "ses_b") == two

    run_test(main)


# --- what is refused ---------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Foreign(ev.Event):
    """An event that no registry knows."""

    type = "session.foreign"
    durable = True


Break = Callable[[list[Stored]], Sequence[Stored]]


def _with(seq: int, **changes: Any) -> Break:
    return lambda log: [attrs.evolve(item, **changes) if item.seq == seq else item for item in log]


def _event(seq: int, make: Callable[[Stored], ev.Event]) -> Break:
    return lambda log: [attrs.evolve(i, event=make(i)) if i.seq == seq else i for i in log]


def _after_its_end(log: list[Stored]) -> Sequence[Stored]:
    last = log[-1]
    gone = attrs.evolve(
        last, seq=last.seq + 1, event_id="src_gone", event=ev.SessionDeletedEvent(session_id=SES)
    )
    late = attrs.evolve(
        gone, seq=gone.seq + 1, event_id="src_late", event=ev.SessionRenamed(session_id=SES, title="x")
    )
    return [*log, gone, late]


def _admitted(input_id: str) -> ev.InputAdmitted:
    return ev.InputAdmitted(input_id=input_id, kind="user", delivery="steer", payload={}, session_id=SES)


def _renamed(seq: int) -> Break:
    return _event(seq, lambda item: ev.SessionRenamed(session_id=SES, title="x"))


HERE = 5
"""So many events of the log are there before it is replayed."""

REFUSED: dict[str, tuple[Break, type[Exception], str]] = {
    "another event at a seq": (_renamed(3), ReplayDiverged, "differs"),
    "another id at a seq": (_with(3, event_id="src_x"), ReplayDiverged, "differs"),
    "another time at a seq": (_with(3, created=1), ReplayDiverged, "differs"),
    "another execution at a seq": (_with(3, execution_id="exe_x"), ReplayDiverged, "differs"),
    "other metadata at a seq": (_with(3, metadata={"a": 1}), ReplayDiverged, "differs"),
    "another location at a seq": (_with(3, location="x"), ReplayDiverged, "differs"),
    "a gap": (lambda log: [i for i in log if i.seq != HERE], ReplayDiverged, "leaves a gap"),
    "a gap later on": (lambda log: [i for i in log if i.seq != HERE + 2], ReplayDiverged, "leaves a gap"),
    "the wrong order": (lambda log: [*log[:HERE], log[HERE + 1], log[HERE]], ReplayDiverged, "leaves a gap"),
    "a negative seq": (lambda log: [attrs.evolve(log[0], seq=-1)], ReplayDiverged, "differs"),
    "a second creation": (
        _event(HERE, lambda i: created(SES)),
        ReplayDiverged,
        "begins with its creation",
    ),
    "no creation": (
        lambda log: [attrs.evolve(i, event=attrs.evolve(i.event, session_id="ses_new")) for i in log[1:2]],
        ReplayDiverged,
        "leaves a gap",
    ),
    "a log that doesn't begin": (
        lambda log: [
            attrs.evolve(log[0], event_id="src_n", event=ev.SessionRenamed(session_id="ses_new", title=""))
        ],
        ReplayDiverged,
        "begins with its creation",
    ),
    "an event of another session": (
        _event(HERE, lambda i: attrs.evolve(i.event, session_id="ses_b")),
        ReplayDiverged,
        "ses_b seq 5 differs",
    ),
    "an id of this session again": (
        _with(HERE, event_id="src_1"),
        ReplayDiverged,
        "has the id of ses_a seq 1",
    ),
    "an id of another session": (_with(HERE, event_id="b_2"), ReplayDiverged, "has the id of ses_b seq 2"),
    "an input of another session": (
        _event(HERE, lambda i: _admitted("b_one")),
        ReplayDiverged,
        "b_one was admitted to ses_b",
    ),
    "an input that is admitted twice": (
        _event(HERE, lambda i: _admitted("src_one")),
        ReplayDiverged,
        "src_one was admitted to ses_a",
    ),
    "an input that nobody admitted": (
        _event(HERE, lambda i: ev.InputPromoted(input_id="src_x", session_id=SES)),
        ReplayDiverged,
        "doesn't wait in this session",
    ),
    "an input that waits elsewhere": (
        _event(HERE, lambda i: ev.InputCancelled(input_id="b_three", session_id=SES)),
        ReplayDiverged,
        "doesn't wait in this session",
    ),
    "an input that was promoted before": (
        _event(HERE, lambda i: ev.InputPromoted(input_id="src_one", session_id=SES)),
        ReplayDiverged,
        "doesn't wait in this session",
    ),
    "an unknown type": (_event(HERE, lambda i: Foreign(session_id=SES)), UnknownEvent, "session.foreign"),
    "a live event": (
        _event(
            HERE, lambda i: ev.TextDelta(ordinal=0, text="x", session_id=SES, assistant_message_id="msg_1")
        ),
        UnknownEvent,
        "text.delta",
    ),
    "more after the end": (_after_its_end, ReplayDiverged, "follows the session's end"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_anything_but_a_continuation_is_refused_as_a_whole(how: str) -> None:
    """A replay that isn't an exact continuation is refused with its place, and nothing of it is written, not
    even what stood before the flaw."""

    async def main() -> None:
        change, error, says_ = REFUSED[how]
        log, other = await a_log(), await a_log("ses_b", prefix="b")
        world = World()
        async with open_test_engine(world=world, check=False) as engine:
            await engine.replay([*log[:HERE], *other])
            before = rows(world)
            with pytest.raises(error, match=says_):
                await engine.replay([*change(log)])
            assert rows(world) == before

    run_test(main)


def test_a_session_that_somebody_executes_isnt_replayed() -> None:
    """While a session has a claim, live or not, a replay of it is refused, were it the same events."""

    async def main() -> None:
        world = World()
        stalling = ScriptedProvider(world.clock, [reply(Stall(stall_ms=60_000), Finish())])
        async with open_test_engine(world=world, provider=stalling, check=False) as engine:
            session = await engine.create_session()
            await session.send("hello")
            await trio.sleep(1)
            log = await stored_in(engine.node.log, session.id)
            with pytest.raises(ReplayDiverged, match="is claimed"):
                await engine.replay(log)

    run_test(main)


# --- who hears of it ---------------------------------------------------------------------------------


def test_followers_and_hints_hear_of_a_replay_and_listeners_dont() -> None:
    """Followers of this node and of another one read what was replayed, `changes` hints at it; nobody is told
    that it happened just now."""

    async def main() -> None:
        log, world, told = await a_log(), World(), list[Stored]()

        async def listen(stored: Stored) -> None:
            told.append(stored)

        async with (
            open_test_engine(world=world, listeners=[listen]) as engine,
            open_test_engine(world=world) as other,
        ):
            await engine.replay(log[:1])
            seen: dict[str, list[Stored]] = {"here": [], "there": []}

            async def follow(name: str, at: Engine) -> None:
                async with at.log(SES, follow=True) as reader:
                    async for item in reader:
                        if isinstance(item, Stored):
                            seen[name].append(item)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow, "here", engine)
                nursery.start_soon(follow, "there", other)
                await trio.sleep(1)
                with engine.changes() as hints, other.changes() as far, engine.live() as live:
                    assert [await anext(hints), await anext(far)] == [SweepRequired()] * 2
                    await engine.replay(log)
                    assert await anext(hints) == Changed(SES, log[-1].seq)
                    assert await anext(far) == SweepRequired()
                    await engine.replay(log)
                    await trio.sleep(1)
                    for silent in (hints, live):
                        with trio.move_on_after(1) as scope:
                            await anext(silent)  # type: ignore[call-overload]
                        assert scope.cancelled_caught
                nursery.cancel_scope.cancel()
            assert seen == {"here": log, "there": log}
            assert told == []
            assert engine.metrics().events == {}

    run_test(main)
