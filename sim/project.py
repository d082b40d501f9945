"""The seam for a project of a user's own: their provider, tools and listeners in these worlds, their
invariants beside ours."""

from __future__ import annotations

import contextlib
import pkgutil
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import attrs

from engine.ports import Listener, Provider, ProviderEvent, System, Tool
from engine.records import JSON, Request
from sim.clock import NodeClock
from sim.tools import ToolNotes, noted
from sim.verdict import Violation

if TYPE_CHECKING:
    from sim.record import Record

Calls = Mapping[str, Sequence[Mapping[str, JSON]]]
"""By a tool's name, the inputs that the replies of generated worlds call it with."""


@attrs.frozen(kw_only=True)
class Project:
    """What a project brings to one run. A factory is called at each start of a node, with that incarnation's
    simulated clock, ids and chance; what it makes may wait on this clock only.

    `provider` answers every request in place of the replies that a scenario scripts. `tools` stand beside a
    scenario's, in place of one of the same name; `calls` are inputs that generated worlds call them with.
    `listeners` are told beside a scenario's. `checks` are invariants, asked after the run.
    """

    provider: Callable[[System], Provider] | None = None
    tools: Callable[[System], Sequence[Tool]] | None = None
    listeners: Callable[[System], Sequence[Listener]] | None = None
    checks: Sequence[Callable[[Record], Iterable[Violation]]] = ()
    calls: Calls = attrs.field(factory=dict)

    def judge(self, record: Record, found: Sequence[Violation]) -> list[Violation]:
        """What the simulator's own checks `found` in a finished run, and what the project's find."""
        return [*found, *(violation for check in self.checks for violation in _asked(check, record))]

    def provider_or(self, scripted: Provider, system: System, clock: NodeClock) -> Provider:
        """The project's provider behind gates, or `scripted` if it has none."""
        return scripted if self.provider is None else Gated(self.provider(system), clock)

    def tools_beside(
        self, doubles: Sequence[Tool], system: System, notes: ToolNotes, clock: NodeClock
    ) -> list[Tool]:
        """The project's tools, and those `doubles` whose names they don't take."""
        own = [] if self.tools is None else [noted(tool, notes, clock) for tool in self.tools(system)]
        taken = {tool.name for tool in own}
        return [*own, *(tool for tool in doubles if tool.name not in taken)]

    def listeners_of(self, system: System) -> list[Listener]:
        """The project's listeners."""
        return [] if self.listeners is None else list(self.listeners(system))


def _asked(check: Callable[[Record], Iterable[Violation]], record: Record) -> Iterable[Violation]:
    """What a check finds; one that raises is told like a breach, so that its run is saved and not lost."""
    try:
        return list(check(record))
    except Exception as exc:
        name = getattr(check, "__name__", type(check).__name__)
        return [Violation(rule="project", sentence=f"the check {name} raised {type(exc).__name__}: {exc}")]


MakeProject = Callable[[], Project]
"""Makes the project of one run: what it holds beside the database, such as bookings at a simulated airline,
belongs to that run alone."""


def find_project(name: str | None) -> MakeProject:
    """The function named `module:function`; for None, one that brings nothing. Raises `ValueError` for a
    malformed name, `ImportError` or `AttributeError` where nothing is there, and `TypeError` for what isn't a
    function."""
    if name is None:
        return Project
    found: MakeProject = pkgutil.resolve_name(name)
    if not callable(found):
        raise TypeError(f"{name} isn't a function that makes a Project")
    return found


class Gated:
    """A provider that passes a gate before it opens, and before each event: there it can be interrupted,
    even if it waits for nothing by itself."""

    def __init__(self, inner: Provider, clock: NodeClock) -> None:
        self._inner = inner
        self._clock = clock

    def open(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[ProviderEvent]]:
        """One request."""
        return self._open(request)

    @contextlib.asynccontextmanager
    async def _open(self, request: Request) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        await self._clock.checkpoint()
        async with self._inner.open(request) as events:
            yield _GatedEvents(events, self._clock)


class _GatedEvents:
    def __init__(self, events: AsyncIterator[ProviderEvent], clock: NodeClock) -> None:
        self._events = events
        self._clock = clock

    def __aiter__(self) -> AsyncIterator[ProviderEvent]:
        return self

    async def __anext__(self) -> ProviderEvent:
        await self._clock.checkpoint()
        return await anext(self._events)

    async def aclose(self) -> None:
        close = getattr(self._events, "aclose", None)
        if close is not None:
            await close()
