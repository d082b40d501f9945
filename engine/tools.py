"""Local tools: one task per call, started beforehand, let go by the commit that made the call durable.

The tasks live in the engine's tool nursery and are only *tracked* by their step: a tool that ignores its
cancellation can't hold the step open. It is abandoned after its grace, and its late result is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import jsonschema
import trio

from engine import codec
from engine import events as ev
from engine.errors import ClaimLost, EventError, ToolError
from engine.ingest import error_text
from engine.lease import Handle
from engine.limits import EngineConfig
from engine.node import Node
from engine.ports import Scope, Tool, ToolContext
from engine.records import JSON, ErrorInfo
from engine.step import Progress, StepInput, ToolDone

logger = logging.getLogger("fencepost.tools")

Terminal = ev.ToolSucceeded | ev.ToolFailed
DEFECT = "the tool failed because of a fault of its own; its effect is uncertain"
BAD_SCHEMA = "the tool wasn't run because its own description of its input is broken"


class ToolTask:
    """One call of one tool."""

    def __init__(
        self,
        node: Node,
        handle: Handle,
        tool: Tool,
        location: str | None,
        limit: trio.CapacityLimiter,
        call: ev.ToolCalled,
        post: Callable[[StepInput], Awaitable[None]],
        show: Callable[[Progress], None],
    ) -> None:
        self.call = call
        self.outcome: Terminal | None = None  #: known once the handler returned or raised by itself
        self.started = False  #: the handler may have run
        self.finished = trio.Event()
        self._node = node
        self._handle = handle
        self._tool = tool
        self._limit = limit
        self._location = location
        self._post = post
        self._show = show
        self._decided = trio.Event()
        self._dropped = False
        self._cancelled = False
        self._scope: Scope | None = None

    def go(self) -> None:
        """The call is durable: let the task run the tool."""
        self._decided.set()

    def drop(self) -> None:
        """The call was never committed: let the task end. No effect after `go`."""
        if not self._decided.is_set():
            self._dropped = True
            self._decided.set()

    def cancel(self) -> None:
        """Ask the tool to stop; what it returns from then on within its grace still counts."""
        self._cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """The task. Nothing a tool raises gets out of it, but for what ends the process."""
        running = self._node.tools_running
        try:
            await self._node.clock.checkpoint()
            await self._decided.wait()
            await self._node.clock.checkpoint()
            if not self._dropped:
                running[id(self)] = f"{self.call.name} ({self.call.call_id} of {self.call.session_id})"
                await self._run()
        finally:
            running.pop(id(self), None)
            self.finished.set()
        if self.outcome is not None:
            await self._node.clock.checkpoint()
            await self._post(ToolDone(event=self.outcome))

    async def _run(self) -> None:
        try:
            with self._node.clock.scope() as scope:
                self._scope = scope
                if self._cancelled:
                    return
                async with self._limit, self._node.tool_limit:
                    await self._node.clock.checkpoint()
                    self._handle.check()
                    self.started = True
                    self.outcome = await self._outcome()
        except ClaimLost:
            logger.info("a tool wasn't started: its claim is lost", extra=self._fields())
        except Exception:
            logger.exception("the clean-up of a cancelled tool failed", extra=self._fields())

    async def _outcome(self) -> Terminal:
        refused = self._refused()
        if refused is not None:
            self.started = False
            return self._failed(refused, "not_run")
        bound_ms = self._node.config.tool_ms_max
        try:
            with self._node.clock.scope(self._node.deadline(bound_ms)):
                output = await self._tool.handler(self._context(), self.call.input)
                return self._succeeded(output)
            text = f"the tool took longer than {bound_ms} ms and was stopped: it may have taken effect"
            return self._failed(ErrorInfo(type="timeout", message=text), "unknown")
        except ToolError as exc:
            return self._failed(describe(exc, self._node.config), "failed")
        except Exception:
            logger.exception("a tool raised something other than ToolError", extra=self._fields())
            return self._failed(ErrorInfo(type="tool-defect", message=DEFECT), "unknown")

    def _refused(self) -> ErrorInfo | None:
        """Why the tool isn't run with this input. A schema that can't be asked is the tool's fault, too."""
        try:
            problem = invalid_input(self._tool, self.call.input)
        except Exception:
            logger.exception("a tool's schema can't be used", extra=self._fields())
            return ErrorInfo(type="tool-defect", message=BAD_SCHEMA)
        if problem is None:
            return None
        return ErrorInfo(type="invalid-input", message=error_text(problem, self._node.config))

    def _context(self) -> ToolContext:
        return ToolContext(
            fence=self._handle.fence,
            assistant_message_id=self.call.assistant_message_id,
            call_id=self.call.call_id,
            location=self._location,
            progress=self._progress,
        )

    def _progress(self, value: JSON) -> None:
        self._show(Progress(call_id=self.call.call_id, value=codec.clean_json(value)))

    def _succeeded(self, output: JSON) -> Terminal:
        try:
            value, truncated = codec.bounded_json(output, self._node.config.tool_output_bytes_max)
        except EventError as exc:
            text = error_text(f"the tool's output can't be stored: {exc}", self._node.config)
            error = ErrorInfo(type="invalid-output", message=text)
            return self._failed(error, "unknown")
        return ev.ToolSucceeded(**self._ids(), output=value, truncated=truncated)

    def _failed(self, error: ErrorInfo, outcome: ev.Outcome) -> Terminal:
        return ev.ToolFailed(**self._ids(), error=error, outcome=outcome)

    def _ids(self) -> dict[str, Any]:
        call = self.call
        return {
            "session_id": call.session_id,
            "assistant_message_id": call.assistant_message_id,
            "call_id": call.call_id,
        }

    def _fields(self) -> dict[str, str]:
        return {**self._ids(), "tool": self.call.name, "execution_id": self._handle.fence.execution_id}


def describe(exc: ToolError, config: EngineConfig) -> ErrorInfo:
    """A tool's own error as the model sees it; details that JSON can't hold are dropped, long ones cut."""
    try:
        details, _ = codec.bounded_json(exc.details, config.error_bytes_max)
    except EventError:
        details = None
    return ErrorInfo(
        type=codec.cut_text(codec.clean_text(str(exc.type)), config.name_bytes_max),
        message=error_text(exc.message, config),
        retryable=bool(exc.retryable),
        details=details,
    )


def invalid_input(tool: Tool, value: JSON) -> str | None:
    """Why `value` doesn't fit the tool's JSON Schema, for the model to read; None if it does."""
    validator = jsonschema.Draft202012Validator(tool.schema)
    error = jsonschema.exceptions.best_match(validator.iter_errors(value))
    if error is None:
        return None
    where = "/".join(str(part) for part in error.absolute_path)
    return f"the input doesn't fit the tool's schema{f' at {where}' if where else ''}: {error.message}"
