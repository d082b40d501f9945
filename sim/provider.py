"""The simulated provider: scripted replies, mangled on their way if the scenario says so, or a project's own
provider; each request is noted outside the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType

import attrs

from engine.ports import Provider, ProviderEvent
from engine.providers.script import Emit, Move, Reply
from engine.providers.scripted import InTurn
from engine.records import Request
from sim.gate import Node
from sim.kernel import Kernel
from sim.ledger import Ledger, Moment, Opened
from sim.scenario import Mangle


@attrs.frozen(kw_only=True)
class Foreign(ProviderEvent):
    """An event of a kind that the engine doesn't know."""


@attrs.frozen(kw_only=True)
class MangledReply(Reply):
    """A reply whose events don't all arrive as they were sent."""

    mangles: tuple[Mangle, ...] = ()

    def moves(self) -> Iterator[Move]:
        """What arrives, in order."""
        return mangled(super().moves(), self.mangles)


def mangled(moves: Iterable[Move], mangles: Sequence[Mangle]) -> Iterator[Move]:
    """`moves` with each event that `mangles` names dropped, repeated, swapped with the next one, with nulls
    in all its fields, or made one of an unknown kind. Waits stay where they are."""
    does = {one.event: one.does for one in mangles}
    nth, held = 0, list[Emit]()
    for move in moves:
        if not isinstance(move, Emit):
            yield move
            continue
        nth += 1
        if does.get(nth) == "swap" and not held:
            held.append(move)
            continue
        yield from _arriving(move, does.get(nth))
        yield from held
        held.clear()
    yield from held  # nothing came after it


def _arriving(sent: Emit, does: str | None) -> Sequence[Emit]:
    match does:
        case "drop":
            return []
        case "repeat":
            return [sent, sent]
        case "nulls":
            nulls = {field.name: None for field in attrs.fields(type(sent.event))}
            return [Emit(attrs.evolve(sent.event, **nulls))]
        case "foreign":
            return [Emit(Foreign())]
    return [sent]


class Replies:
    """Chooses what each request is answered. Shared by all nodes: a provider counts the requests of a
    session, whichever node sends them."""

    def __init__(self, in_turn: InTurn, mangles: Mapping[str, Sequence[Mangle]]) -> None:
        self._in_turn = in_turn
        self._mangles = mangles

    def __call__(self, request: Request) -> Reply:
        """The next reply of the request's session."""
        reply = self._in_turn(request)
        nth = self._in_turn.requests(request.session_id)
        mangles = [one for one in self._mangles.get(request.session_id, ()) if one.request == nth]
        return MangledReply(lines=reply.lines, mangles=tuple(mangles)) if mangles else reply


class SimProvider:
    """`engine.ports.Provider` for one incarnation of a node: `inner`, with its requests noted."""

    def __init__(
        self,
        kernel: Kernel,
        node: Node,
        inner: Provider,
        ledger: Ledger,
        moment: Callable[[], Moment],
    ) -> None:
        self._kernel = kernel
        self._node = node
        self._inner = inner
        self._ledger = ledger
        self._moment = moment

    def open(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[ProviderEvent]]:
        """One request; noted at once, whatever comes of it."""
        self._kernel.note("provider", self._node, "open", request=request)
        self._ledger.opened.append(
            Opened(
                moment=self._moment(),
                node=self._node.key,
                session_id=request.session_id,
                execution_id=request.execution_id,
                message_id=request.message_id,
            )
        )
        return _Traced(self._kernel, self._node, request.message_id, self._inner.open(request))


class _Traced:
    """A request whose events go into the trace."""

    def __init__(
        self,
        kernel: Kernel,
        node: Node,
        message_id: str,
        inner: AbstractAsyncContextManager[AsyncIterator[ProviderEvent]],
    ) -> None:
        self._kernel = kernel
        self._node = node
        self._message_id = message_id
        self._inner = inner
        self._events: AsyncIterator[ProviderEvent] | None = None

    async def __aenter__(self) -> AsyncIterator[ProviderEvent]:
        self._events = await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)

    def __aiter__(self) -> AsyncIterator[ProviderEvent]:
        return self

    async def __anext__(self) -> ProviderEvent:
        assert self._events is not None
        event = await anext(self._events)
        self._kernel.note(
            "provider", self._node, type(event).__name__, message_id=self._message_id, event=event
        )
        return event

    async def aclose(self) -> None:
        """Close what can be closed: left open, an asynchronous generator would end in another task."""
        close = getattr(self._events, "aclose", None)
        if close is not None:
            await close()
