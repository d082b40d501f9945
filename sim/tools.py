"""Simulated tools: they do what the scenario says, and note each start outside the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from engine.errors import ToolError
from engine.ports import Tool, ToolContext
from engine.records import JSON
from sim.clock import NodeClock
from sim.gate import Node
from sim.kernel import Kernel
from sim.ledger import Ledger, Moment, ToolStarted
from sim.scenario import Tool as ToolSpec

FOREVER_S = 10 * 365 * 86_400.0


class ToolCrash(Exception):
    """A bug of a tool, as a scenario asked for."""


@attrs.frozen(kw_only=True)
class ToolDouble:
    """One tool on one incarnation of a node."""

    spec: ToolSpec
    kernel: Kernel
    node: Node
    clock: NodeClock
    ledger: Ledger
    moment: Callable[[], Moment]

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
        self.kernel.note("tool", self.node, self.spec.name, call=context.call_id, value=value)
        self.ledger.tools.append(
            ToolStarted(
                moment=self.moment(),
                node=self.node.key,
                session_id=context.fence.session_id,
                execution_id=context.fence.execution_id,
                tool=self.spec.name,
                call_id=context.call_id,
                message_id=context.assistant_message_id,
            )
        )
        seconds = self.spec.takes_ms / 1000
        if self.spec.ignores_cancel:
            with self.clock.scope(self.clock.monotonic() + seconds + FOREVER_S, shield=True):
                await self.clock.sleep(seconds)
        else:
            await self.clock.sleep(seconds)
        if self.spec.crashes is not None:
            raise ToolCrash(self.spec.crashes)
        if self.spec.fails is not None:
            raise ToolError("failed", self.spec.fails)
        return self.spec.value
