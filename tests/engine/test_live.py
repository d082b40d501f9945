"""The live channel: everything from now on, in order, and a bounded buffer for each who listens."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from engine.errors import SubscriberOverflow
from engine.events import Event, SessionRenamed, Stored
from engine.live import LiveFeed, Subscriber
from tests.engine.hand_clock import HandClock


def live(session_id: str, title: str = "t") -> Event:
    """A bare event."""
    return SessionRenamed(session_id=session_id, title=title)


def committed(session_id: str, seq: int) -> Stored:
    """A stored event."""
    return Stored(event_id=f"e{seq}", seq=seq, created=0, execution_id=None, event=live(session_id))


async def rest_of(subscriber: Subscriber) -> list[Stored | Event]:
    """What is left until the subscription ends."""
    return [item async for item in subscriber]


@pytest.mark.trio
async def test_durable_and_live_events_come_in_one_order() -> None:
    """As they were fed, from the moment of subscribing on, and only those of the session."""
    feed = LiveFeed(HandClock(), 10)
    feed.feed(live("a", "before"))
    with feed.subscribe("a") as one, feed.subscribe() as everything:
        items: list[Stored | Event] = [committed("a", 1), live("a"), committed("b", 1), live("b")]
        for item in items:
            feed.feed(item)
        feed.close()
        assert await rest_of(one) == items[:2]
        assert await rest_of(everything) == items


@pytest.mark.trio
async def test_who_falls_behind_is_cut_off_alone() -> None:
    """The buffer is handed out first, then the error says what to do; the others miss nothing."""
    feed = LiveFeed(HandClock(), 10)
    with trio.fail_after(5), feed.subscribe("a", buffer_max=2) as slow, feed.subscribe("a") as fast:
        for number in range(4):
            feed.feed(live("a", str(number)))
        assert [await anext(slow), await anext(slow)] == [live("a", "0"), live("a", "1")]
        feed.feed(live("a", "late"))
        for _ in range(2):
            with pytest.raises(SubscriberOverflow, match="more than 2 events behind"):
                await anext(slow)
        feed.close()
        assert len(await rest_of(fast)) == 5


@pytest.mark.trio
async def test_what_is_for_others_takes_no_room() -> None:
    """Events of other sessions don't fill the buffer."""
    feed = LiveFeed(HandClock(), 1)
    with trio.fail_after(5), feed.subscribe("a") as subscriber:
        for _ in range(5):
            feed.feed(live("b"))
        feed.feed(live("a"))
        assert await anext(subscriber) == live("a")


@pytest.mark.trio
async def test_a_waiting_subscriber_wakes_for_an_event_and_for_the_end() -> None:
    """It waits without polling, and the close of the feed ends it."""
    feed = LiveFeed(HandClock(), 10)
    got: list[Stored | Event] = []
    with trio.fail_after(5), feed.subscribe("a") as subscriber:

        async def listen() -> None:
            async for item in subscriber:
                got.append(item)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            await trio.testing.wait_all_tasks_blocked()
            feed.feed(live("a"))
            await trio.testing.wait_all_tasks_blocked()
            assert got == [live("a")]
            feed.close()


@pytest.mark.trio
async def test_a_subscription_to_a_closed_feed_ends_at_once() -> None:
    """Nothing will ever be fed, so nobody is left waiting for it."""
    feed = LiveFeed(HandClock(), 10)
    feed.close()
    with trio.fail_after(5), feed.subscribe("a") as subscriber:
        assert await rest_of(subscriber) == []


@pytest.mark.trio
async def test_a_subscription_ends_with_its_block() -> None:
    """Who left is offered nothing more, also when it left by an error."""
    feed = LiveFeed(HandClock(), 1)
    with pytest.raises(ValueError, match="out"), feed.subscribe("a"):
        raise ValueError("out")
    assert feed._subscribers == {}
