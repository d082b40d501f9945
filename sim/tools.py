"""Simulated tools: they do what the scenario says; each start, of a project's own tools too, is noted
outside the log."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from engine.errors import FencepostError, ToolError
from engine.ports import Tool, ToolContext
from engine.records import JSON
from sim.clock import NodeClock
from sim.gate import Node
from sim.kernel import Kernel
from sim.ledger import Ledger, Moment, ToolStarted
from sim.scenario import Tool as ToolSpec

if TYPE_CHECKING:
    from engine.api import Engine

FOREVER_S = 10 * 365 * 86_400.0

NESTING = 1_000
"""Levels of the result that is nested too deeply."""


class ToolCrash(Exception):
    """A bug of a tool, as a scenario asked for."""


@attrs.frozen(kw_only=True)
class ToolNotes:
    """Where one incarnation of a node notes the starts of its tools."""

    kernel: Kernel
    node: Node
    ledger: Ledger
    moment: Callable[[], Moment]

    def started(self, name: str, context: ToolContext, value: dict[str, Any]) -> int:
        """A handler was called; the how manieth start of this tool it is, on all nodes together."""
        self.kernel.note("tool", self.node, name, call=context.call_id, value=value)
        self.ledger.tools.append(
            ToolStarted(
                moment=self.moment(),
                node=self.node.key,
                session_id=context.fence.session_id,
                execution_id=context.fence.execution_id,
                tool=name,
                call_id=context.call_id,
                message_id=context.assistant_message_id,
            )
        )
        return sum(1 for one in self.ledger.tools if one.tool == name)


def noted(tool: Tool, notes: ToolNotes, clock: NodeClock) -> Tool:
    """A project's own tool, each start of which is noted. Before and after it stands a gate, so that it is
    interrupted there even if its handler waits for nothing."""

    async def handle(context: ToolContext, value: dict[str, Any]) -> JSON:
        notes.started(tool.name, context, value)
        await clock.checkpoint()
        result = await tool.handler(context, value)
        await clock.checkpoint()
        return result

    return attrs.evolve(tool, handler=handle)


@attrs.frozen(kw_only=True)
class ToolDouble:
    """One tool on one incarnation of a node. `engine` is what it asks, if it asks for something, and
    `session_id` makes an id of a session's name."""

    spec: ToolSpec
    notes: ToolNotes
    clock: NodeClock
    engine: Callable[[], Engine | None]
    session_id: Callable[[str], str]

    def tool(self) -> Tool:
        """The tool as the engine sees it."""
        return Tool(
            name=self.spec.name,
            description=f"the simulated tool {self.spec.name}",
            schema={"type": "object"},
            handler=self.handle,
        )

    async def handle(self, context: ToolContext, value: dict[str, Any]) -> JSON:
        """The handler."""
        start = self.notes.started(self.spec.name, context, value)
        seconds = self.spec.takes_ms / 1000
        if self.spec.ignores_cancel:
            with self.clock.scope(self.clock.monotonic() + seconds + FOREVER_S, shield=True):
                await self.clock.sleep(seconds)
        else:
            await self.clock.sleep(seconds)
        if self.spec.asks is not None:
            await self._ask(context)
        if self.spec.crashes is not None:
            raise ToolCrash(self.spec.crashes)
        if self.spec.fails is not None:
            raise ToolError("failed", self.spec.fails)
        if self.spec.unfit is not None:
            return _unfit(self.spec.unfit)
        return self.spec.value(start)

    async def _ask(self, context: ToolContext) -> None:
        """What a client could ask for, too. A refusal is the model's to see."""
        engine, named = self.engine(), self.spec.session
        if engine is None:
            raise ToolError("failed", "the engine isn't up")
        session_id = context.fence.session_id if named is None else self.session_id(named)
        try:
            match self.spec.asks:
                case "send":
                    await engine.send(session_id, f"the tool {self.spec.name} asks")
                case "interrupt":
                    await engine.interrupt(session_id)
                case "resume":
                    await engine.resume(session_id)
                case "delete":
                    await engine.delete(session_id)
        except FencepostError as exc:
            raise ToolError("refused", type(exc).__name__) from exc


def _unfit(kind: str) -> Any:
    """A result that no log can hold."""
    match kind:
        case "nan":
            return {"rows": math.nan}
        case "number":
            return 2**70
        case "deep":
            nested: JSON = None
            for _ in range(NESTING):
                nested = [nested]
            return nested
    return object()
