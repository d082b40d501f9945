"""One step in this process: the reader of its request, its tools, and the one task that owns its state."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol

import attrs
import trio

from engine import events as ev
from engine import facts, step
from engine.codec import clean_text, decode_row
from engine.events import Stored
from engine.history import History
from engine.lease import Handle
from engine.locations import Services
from engine.log import Published
from engine.node import Node
from engine.plan import Plan
from engine.ports import ProviderEvent, Reader, Scope
from engine.records import EventRow, Request, SessionRow, ToolSpec
from engine.settlement import NOTHING_HELD, Held
from engine.tools import ToolTask

logger = logging.getLogger("fencepost.runner")


class Publisher(Protocol):
    """The execution's own `publish`: fenced, and patient with a busy store."""

    def __call__(
        self,
        plan: Callable[..., Plan[Any]],
        *,
        after_commit: Callable[[Published[Any]], None] | None = None,
        label: str = "",
    ) -> Awaitable[Published[Any]]: ...


class Runner:
    """Runs one step. The reader is started before the step exists and waits for the commit that opens it:
    a task started inside the writer's hop would inherit another session's context."""

    def __init__(
        self,
        node: Node,
        handle: Handle,
        session: SessionRow,
        services: Services,
        history: History,
        publish: Publisher,
        failed: Callable[[Exception], None],
        message_id: str,
    ) -> None:
        self.message_id = message_id
        self.state: step.StepState | None = None
        self._node = node
        self._handle = handle
        self._session = session
        self._services = services
        self._history = history
        self._publish = publish
        self._failed = failed
        self._attempt = 1
        self._decided = trio.Event()
        self._begun = False
        self._stopped = False
        self._reader: Scope | None = None
        self._reader_ended = trio.Event()
        self._reader_due = math.inf  # when a request that is open must have spoken or ended, monotonic
        self._reader_given_up = False
        self._tools: dict[str, ToolTask] = {}
        self._tool_limit = trio.CapacityLimiter(node.config.tools_per_session_max)
        self._send, self._receive = trio.open_memory_channel[step.StepInput](node.config.provider_buffer_max)

    # --- before and at the commit that opens the step ------------------------------------------------

    def start(self) -> None:
        """Start the reader; it waits for `begin` or `drop`, one of which must come.

        Like a tool it is only tracked from here: a request that is slow to close can't hold the step open.
        """
        self._node.tool_nursery.start_soon(
            self._run_reader, name=f"{self._session.session_id}/reader/{self.message_id}"
        )

    def begin(self, *, attempt: int, tools_allowed: bool) -> None:
        """In the hop of the commit that stored `step.started`: the step exists, its request may open."""
        self.state = step.StepState(
            facts=facts.StepFacts(session_id=self._session.session_id, message_id=self.message_id),
            tools=frozenset(self._services.tools),
            tools_allowed=tools_allowed,
        )
        self._attempt = attempt
        self._begun = True
        self._decided.set()

    def drop(self) -> None:
        """The step was not opened: let the reader end. No effect after `begin`."""
        self._decided.set()

    def closed(self, stored: Sequence[Stored]) -> None:
        """In the hop of the commit that closed the step: memory follows."""
        if self.state is not None:
            after = facts.apply_all(self.state.facts, [item.event for item in stored])
            self.state = attrs.evolve(self.state, facts=after)

    # --- the owner of the state ----------------------------------------------------------------------

    async def run(self) -> step.Decision:
        """Decide input after input until the step is over; that last decision is the caller's to commit."""
        while True:
            inputs = await self._inputs()
            assert self.state is not None
            decision = step.decide_all(self.state, inputs, self._node.config)
            if decision.closing is not None:
                self._stop_reader()
                return decision
            if decision.durable:
                await self._commit(decision)
            else:
                self.state = decision.state
            self.tell(decision.live)

    async def _inputs(self) -> list[step.StepInput]:
        """Wait for one input, then take along all that wait already."""
        inputs = [await self._first_input()]
        await self._node.clock.checkpoint()
        while True:
            try:
                inputs.append(self._receive.receive_nowait())
            except trio.WouldBlock:
                return inputs

    async def _first_input(self) -> step.StepInput:
        """The next input; if a request neither speaks nor ends once cancelled, that its stream failed."""
        with contextlib.suppress(trio.WouldBlock):
            return self._receive.receive_nowait()  # it came in time, however late this task looks
        clock = self._node.clock
        while not (self._reader_ended.is_set() or self._reader_given_up):
            # a request that isn't open yet may be late by then: look again
            with clock.scope(min(self._reader_due, clock.monotonic() + self._patience_s())):
                return await self._receive.receive()
            if clock.monotonic() >= self._reader_due:
                self._reader_given_up = True
                self._stop_reader()
                logger.warning("a request didn't close in time and was abandoned", extra=self._fields())
                return step.StreamFailed(kind="transport", message="the provider's request didn't end")
        return await self._receive.receive()

    def _patience_s(self) -> float:
        """How long a request may neither speak nor end: then it is cancelled, and has a tool's grace."""
        config = self._node.config
        return (config.provider_idle_ms_max + config.tool_grace_ms) / 1000

    def _fields(self) -> dict[str, str]:
        return {"session_id": self._session.session_id, "assistant_message_id": self.message_id}

    async def _commit(self, decision: step.Decision) -> None:
        tasks = [self._prepare(call) for call in decision.start]

        def after_commit(published: Published[None]) -> None:
            self.state = decision.state
            for task in tasks:
                task.go()

        try:
            await self._publish(
                lambda tx, row: Plan(events=decision.durable, value=None),
                after_commit=after_commit,
                label=decision.durable[0].type,
            )
        finally:
            for task in tasks:
                task.drop()

    def tell(self, live: Sequence[ev.Event]) -> None:
        """Broadcast what is never stored."""
        for event in live:
            self._node.log.live.feed(event)

    # --- tools ---------------------------------------------------------------------------------------

    def _prepare(self, call: ev.ToolCalled) -> ToolTask:
        task = ToolTask(
            self._node,
            self._handle,
            self._services.tools[call.name],
            self._session.location,
            self._tool_limit,
            call,
            self._post,
            self._show,
        )
        self._tools[call.call_id] = task
        self._node.tool_nursery.start_soon(
            task.run, name=f"{self._session.session_id}/tool/{self.message_id}/{call.call_id}"
        )
        return task

    async def _post(self, item: step.StepInput) -> None:
        try:
            await self._send.send(item)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            logger.warning(
                "a late tool result was dropped: its step is settled",
                extra={"assistant_message_id": self.message_id},
            )

    def _show(self, item: step.Progress) -> None:
        # progress is only ever a hint: a full or closed inbox drops it
        with contextlib.suppress(trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            self._send.send_nowait(item)

    async def stop(self) -> Held:
        """Stop the reader and the tools, each within its bound; return what this process still holds.

        They get `tool_grace_ms` under a shield; whoever ignores that is abandoned, and named in a warning.
        """
        self.drop()
        self._stop_reader()
        for task in self._tools.values():
            if not task.finished.is_set():
                task.drop()
                task.cancel()
        ends = [self._reader_ended, *(task.finished for task in self._tools.values())]
        clock = self._node.clock
        with clock.scope(self._node.deadline(self._node.config.tool_grace_ms), shield=True):
            for end in ends:
                await end.wait()
            await clock.checkpoint()
        self._receive.close()
        self._warn_of_stragglers()
        return self._held()

    def _warn_of_stragglers(self) -> None:
        fields = self._fields()
        if not (self._reader_ended.is_set() or self._reader_given_up):
            logger.warning("a request didn't close in time and was abandoned", extra=fields)
        for task in self._tools.values():
            if not task.finished.is_set():
                logger.warning(
                    "a tool ignored its cancellation and was abandoned",
                    extra={**fields, "tool": task.call.name},
                )

    def _held(self) -> Held:
        if self.state is None:
            return NOTHING_HELD
        return Held(
            texts=self.state.texts,
            outcomes={k: task.outcome for k, task in self._tools.items() if task.outcome is not None},
            not_run=frozenset(k for k, task in self._tools.items() if not task.started),
        )

    # --- the reader ----------------------------------------------------------------------------------

    def _stop_reader(self) -> None:
        self._stopped = True
        if self._reader is not None:
            self._reader.cancel()

    @trio.lowlevel.enable_ki_protection
    async def _run_reader(self) -> None:
        """The task. It runs beside the execution, so what it raises is told, not thrown."""
        try:
            await self._read()
        except Exception as exc:
            self._failed(exc)
        finally:
            self._reader_ended.set()

    async def _read(self) -> None:
        clock = self._node.clock
        await clock.checkpoint()
        await self._decided.wait()
        await clock.checkpoint()
        if not self._begun or self._stopped:
            return
        with clock.scope() as reader:
            self._reader = reader
            request = await self._request()
            self._handle.check()
            ending = await self._stream(request)
            await clock.checkpoint()
            await self._post(ending)

    async def _stream(self, request: Request) -> step.StepInput:
        """Pass on the provider's events. Any exception of the provider becomes an input of the step."""
        idle_s = self._node.config.provider_idle_ms_max / 1000
        clock = self._node.clock
        self._reader_due = clock.monotonic() + self._patience_s()
        try:
            with clock.scope(clock.monotonic() + idle_s) as idle:
                async with self._services.provider.open(request) as events, closing(events):
                    async for event in events:
                        await clock.checkpoint()
                        # how long the step takes to make room is no silence of the provider's
                        idle.move(math.inf)
                        self._reader_due = math.inf
                        await self._send.send(event)
                        idle.move(clock.monotonic() + idle_s)
                        self._reader_due = clock.monotonic() + self._patience_s()
                return step.StreamEnded()
        except Exception as exc:
            logger.warning(
                "a provider's request raised", exc_info=exc, extra={"session_id": request.session_id}
            )
            return step.StreamFailed(kind="transport", message=clean_text(f"{type(exc).__name__}: {exc}"))
        except BaseExceptionGroup as group:
            cancelled, failure = group.split(trio.Cancelled)
            if cancelled is None or not isinstance(failure, ExceptionGroup):
                raise
            # whoever stopped the reader doesn't want to hear of its step any more
            logger.info("closing a cancelled request failed: %r", failure)
            raise cancelled from None
        return step.StreamFailed(kind="transport", message=f"the provider said nothing for {idle_s:g} s")

    async def _request(self) -> Request:
        await self._catch_up()
        session = self._session
        assert self.state is not None
        specs = [
            ToolSpec(name=tool.name, description=tool.description, schema=tool.schema)
            for tool in self._services.tools.values()
        ]
        return Request(
            session_id=session.session_id,
            message_id=self.message_id,
            execution_id=self._handle.fence.execution_id,
            model=session.model,
            agent=session.agent,
            system=session.system,
            location=session.location,
            attempt=self._attempt,
            messages=self._history.messages(),
            tools=tuple(specs) if self.state.tools_allowed else (),
        )

    async def _catch_up(self) -> None:
        """Fold what the log got since the last request."""
        limit = self._node.config.page_events_max
        session_id = self._session.session_id

        def page(tx: Reader) -> list[EventRow]:
            return tx.events(session_id, self._history.seq, limit)

        while True:
            rows = await self._node.log.store.read(page)
            self._history.advance(decode_row(row) for row in rows)
            if len(rows) < limit:
                return


@contextlib.asynccontextmanager
async def closing(events: AsyncIterator[ProviderEvent]) -> AsyncIterator[None]:
    """Close the iterator here if it can be closed: left to the garbage collector, an asynchronous generator
    would be finished in another task."""
    try:
        yield
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
