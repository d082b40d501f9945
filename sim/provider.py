"""The simulated provider: the engine's own scripted one, with each request noted outside the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from engine.ports import ProviderEvent
from engine.providers.scripted import InTurn, ScriptedProvider
from engine.records import Request
from sim.clock import NodeClock
from sim.gate import Node
from sim.kernel import Kernel
from sim.ledger import Ledger, Moment, Opened


class SimProvider:
    """`engine.ports.Provider` for one incarnation of a node. `replies` is shared by all: a provider counts
    the requests of a session, whichever node sends them."""

    def __init__(
        self,
        kernel: Kernel,
        node: Node,
        clock: NodeClock,
        replies: InTurn,
        ledger: Ledger,
        moment: Callable[[], Moment],
    ) -> None:
        self._kernel = kernel
        self._node = node
        self._scripted = ScriptedProvider(clock, choose=replies)
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
        return _Traced(self._kernel, self._node, request.message_id, self._scripted.open(request))


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
