"""One step in this process: the reader of its request, its tools, and the one task that owns its state."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
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
from engine.ports import Reader, Scope
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


@attrs.frozen(kw_only=True)
class Over:
    """A step that is over, with the last events and live events that aren't published yet."""

    closing: step.Closing
    state: step.StepState
    durable: Sequence[ev.Event]
    live: Sequence[ev.Event]


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
        self._attempt = 1
        self._decided = trio.Event()
        self._begun = False
        self._reader: Scope | None = None
        self._tools: dict[str, ToolTask] = {}
        self._tool_limit = trio.CapacityLimiter(node.config.tools_per_session_max)
        self._send, self._receive = trio.open_memory_channel[step.StepInput](node.config.provider_buffer_max)

    # --- before and at the commit that opens the step ------------------------------------------------

    def start(self, nursery: trio.Nursery) -> None:
        """Start the reader; it waits for `begin` or `drop`."""
        nursery.start_soon(self._read, name=f"{self._session.session_id}/reader/{self.message_id}")

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

    async def run(self) -> Over:
        """Decide input after input until the step is over; its last events are the caller's to commit."""
        while True:
            inputs = await self._inputs()
            assert self.state is not None
            decision = step.decide_all(self.state, inputs, self._node.config)
            if decision.closing is not None:
                self._stop_reader()
                return Over(
                    closing=decision.closing,
                    state=decision.state,
                    durable=decision.durable,
                    live=decision.live,
                )
            if decision.durable:
                await self._commit(decision)
            else:
                self.state = decision.state
            self.tell(decision.live)

    async def _inputs(self) -> list[step.StepInput]:
        """Wait for one input, then take along all that wait already."""
        inputs = [await self._receive.receive()]
        await self._node.clock.checkpoint()
        while True:
            try:
                inputs.append(self._receive.receive_nowait())
            except trio.WouldBlock:
                return inputs

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

        Tools get `tool_grace_ms` under a shield; whoever ignores that is abandoned, and named in a warning.
        """
        self.drop()
        self._stop_reader()
        running = [task for task in self._tools.values() if not task.finished.is_set()]
        for task in running:
            task.drop()
            task.cancel()
        if running:
            clock = self._node.clock
            with clock.scope(self._node.deadline(self._node.config.tool_grace_ms), shield=True):
                for task in running:
                    await task.finished.wait()
                await clock.checkpoint()
        self._receive.close()
        self._warn_of_stragglers()
        return self._held()

    def _warn_of_stragglers(self) -> None:
        for task in self._tools.values():
            if not task.finished.is_set():
                logger.warning(
                    "a tool ignored its cancellation and was abandoned",
                    extra={"assistant_message_id": self.message_id, "tool": task.call.name},
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
        if self._reader is not None:
            self._reader.cancel()

    async def _read(self) -> None:
        clock = self._node.clock
        await clock.checkpoint()
        await self._decided.wait()
        await clock.checkpoint()
        if not self._begun:
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
        try:
            with clock.scope(clock.monotonic() + idle_s) as idle:
                async with self._services.provider.open(request) as events:
                    async for event in events:
                        await clock.checkpoint()
                        await self._send.send(event)
                        idle.extend(clock.monotonic() + idle_s)
                return step.StreamEnded()
        except Exception as exc:
            return step.StreamFailed(kind="transport", message=clean_text(f"{type(exc).__name__}: {exc}"))
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
