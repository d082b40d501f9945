"""The live channel: durable and live events from now on, through one bounded buffer per subscriber."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator

import trio

from engine.errors import SubscriberOverflow
from engine.events import Event, Stored
from engine.ports import Clock


class Subscriber:
    """An iterator of what is broadcast: `Stored` for committed events, a bare `Event` for live ones.

    Raises `SubscriberOverflow` once it fell behind its buffer, after handing out what the buffer held.
    """

    def __init__(self, clock: Clock, session_id: str | None, buffer_max: int) -> None:
        self.session_id = session_id
        self._clock = clock
        self._buffer: collections.deque[Stored | Event] = collections.deque()
        self._buffer_max = buffer_max
        self._overflowed = False
        self._closed = False
        self._wake = trio.Event()

    def offer(self, item: Stored | Event) -> None:
        """Buffer one item, or mark the subscriber as overflown."""
        if self._overflowed:
            return
        if len(self._buffer) >= self._buffer_max:
            self._overflowed = True
        else:
            self._buffer.append(item)
        self._wake.set()

    def close(self) -> None:
        """End the iteration once the buffer is read."""
        self._closed = True
        self._wake.set()

    def __aiter__(self) -> Subscriber:
        return self

    async def __anext__(self) -> Stored | Event:
        await self._clock.checkpoint()
        while not self._buffer:
            if self._overflowed:
                raise SubscriberOverflow(
                    f"this subscriber fell more than {self._buffer_max} events behind and was cut off; "
                    f"read the log from the last seq it saw"
                )
            if self._closed:
                raise StopAsyncIteration
            self._wake = trio.Event()
            await self._wake.wait()
            await self._clock.checkpoint()
        return self._buffer.popleft()


class LiveFeed:
    """The subscribers of one node, in the order in which they came."""

    def __init__(self, clock: Clock, buffer_max: int) -> None:
        self._clock = clock
        self._buffer_max = buffer_max
        self._subscribers: dict[int, Subscriber] = {}
        self._next = 0
        self._closed = False

    @contextlib.contextmanager
    def subscribe(self, session_id: str | None = None, buffer_max: int | None = None) -> Iterator[Subscriber]:
        """Subscribe to one session, or to all with None, while the block lasts."""
        subscriber = Subscriber(self._clock, session_id, buffer_max or self._buffer_max)
        if self._closed:
            subscriber.close()  # nothing would ever end its wait
        number = self._next
        self._next += 1
        self._subscribers[number] = subscriber
        try:
            yield subscriber
        finally:
            del self._subscribers[number]

    def feed(self, item: Stored | Event) -> None:
        """Offer one item to everybody who listens to its session."""
        session_id = item.event.session_id if isinstance(item, Stored) else item.session_id
        for subscriber in self._subscribers.values():
            if subscriber.session_id in (None, session_id):
                subscriber.offer(item)

    def close(self) -> None:
        """End every subscription, those to come included."""
        self._closed = True
        for subscriber in self._subscribers.values():
            subscriber.close()
