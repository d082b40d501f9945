"""A provider that plays scripts: the embedded default, and the model behind every test and simulation.

It starts no task and keeps no scope open between two events: whoever opened the request is the one who
waits, through the injected clock only, so a cancellation always lands in the opener's own task.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType

import attrs

from engine.ports import Clock, ProviderEvent
from engine.providers.script import Break, Emit, Move, Reply, Wait, says
from engine.records import Request

MS_PER_S = 1_000
SPARE_S = 1.0
"""How much longer than the work inside it a shield lasts, so that the two never end at one instant."""

DEFAULT_REPLY = says("This is the scripted provider: it has no script, so it answers with this line.")


class ScriptedFailure(Exception):
    """A failure that a script asked for, as a real connection would raise one of its own."""


class InTurn:
    """Chooses replies in order, counted for each session apart; the last one is repeated.

    `by_session` has the replies of single sessions, `replies` those of all others. Share one `InTurn`
    between providers and they count together.
    """

    def __init__(
        self, replies: Sequence[Reply], *, by_session: Mapping[str, Sequence[Reply]] | None = None
    ) -> None:
        self._replies = tuple(replies)
        self._by_session = {name: tuple(own) for name, own in (by_session or {}).items()}
        self._requests: dict[str, int] = {}
        if not all((self._replies, *self._by_session.values())):
            raise ValueError("a session needs at least one reply")

    def __call__(self, request: Request) -> Reply:
        """The next reply of the request's session."""
        replies = self._by_session.get(request.session_id, self._replies)
        nth = self._requests.get(request.session_id, 0)
        self._requests[request.session_id] = nth + 1
        return replies[min(nth, len(replies) - 1)]

    def requests(self, session_id: str) -> int:
        """How many requests of the session were answered so far."""
        return self._requests.get(session_id, 0)


class ScriptedProvider:
    """Implements `engine.ports.Provider` with scripts.

    Each opened request takes the next of `replies` for its session, a retry too; or `choose(request)` says
    which reply it gets. Delays are the clock's.
    """

    def __init__(
        self,
        clock: Clock,
        replies: Sequence[Reply] = (DEFAULT_REPLY,),
        *,
        choose: Callable[[Request], Reply] | None = None,
    ) -> None:
        self._clock = clock
        self._choose = choose or InTurn(replies)

    def open(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[ProviderEvent]]:
        """One request, counted when its block is entered."""
        return _Opened(self._clock, self._choose, request)


@attrs.define
class _Opened:
    """The block of one request."""

    _clock: Clock
    _choose: Callable[[Request], Reply]
    _request: Request
    _reply: Reply | None = None
    _stream: _Stream | None = None

    async def __aenter__(self) -> AsyncIterator[ProviderEvent]:
        assert self._reply is None, "a request is opened once"
        self._reply = reply = self._choose(self._request)
        if reply.unreachable is not None:
            await _pause(self._clock, reply.unreachable.delay_ms)
            raise ScriptedFailure(reply.unreachable.unreachable)
        await self._clock.checkpoint()
        self._stream = _Stream(self._clock, reply.moves())
        return self._stream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._reply is not None
        assert self._stream is not None
        self._stream.close()
        if self._reply.close_ms:
            await self._linger(self._reply.close_ms / MS_PER_S)
        if self._reply.on_close is not None:
            failure = ScriptedFailure(self._reply.on_close.on_close)
            if error is not None and self._reply.on_close.joins:
                raise BaseExceptionGroup("closing the request failed, too", [error, failure])
            raise failure

    async def _linger(self, seconds: float) -> None:
        with self._clock.scope(self._clock.monotonic() + seconds + SPARE_S, shield=True):
            await self._clock.sleep(seconds)


class _Stream:
    """The events of one request. Once it ended or broke it has nothing more; closed, it can't be read."""

    def __init__(self, clock: Clock, moves: Iterator[Move]) -> None:
        self._clock = clock
        self._moves = moves
        self._closed = False

    def __aiter__(self) -> AsyncIterator[ProviderEvent]:
        return self

    async def __anext__(self) -> ProviderEvent:
        if self._closed:
            raise RuntimeError("the request was closed: its events can't be read outside its block")
        await self._clock.checkpoint()  # before anything is taken, so that a cancellation loses no event
        for move in self._moves:
            match move:
                case Wait(ms):
                    await _pause(self._clock, ms)
                case Emit(event):
                    return event
                case Break(message):
                    raise ScriptedFailure(message)
        raise StopAsyncIteration

    def close(self) -> None:
        self._closed = True


async def _pause(clock: Clock, ms: int) -> None:
    """Wait, with a checkpoint even for 0."""
    await clock.sleep(ms / MS_PER_S)
