"""What the provider and the tools answered, step by step, as the script of a scenario."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import attrs

from engine import events as ev
from engine.events import Stored
from engine.providers.lines import Call, Error, ErrorKind, Event, Finish, Line, Reasoning, Result, Stall, Text
from engine.providers.script import Reply
from engine.records import JSON, ErrorInfo
from sim.from_log.redact import Redaction, has_null
from sim.scenario import Tool

HELD_UP_MS = 60_000
"""How long what was interrupted goes on without its interruption."""

BROKEN_ARGUMENTS: Mapping[str, str] = {
    "the arguments aren't valid JSON": "{broken",
    "the arguments must be a JSON object": "[]",
}
"""The engine's words for arguments it couldn't use, and arguments of that kind."""

NEVER_STARTED = ("unknown-tool", "tools-disabled")

UNNAMED = {True: "unknown", False: "invalid_request"}
"""What stands for an error that no script line can name, by whether it may be tried again."""

Fragment = ev.TextStarted | ev.ReasoningStarted
FragmentEnd = ev.TextEnded | ev.ReasoningEnded


@attrs.define
class Script:
    """Reads steps; the tools it needs grow with them."""

    redaction: Redaction
    notes: dict[str, None] = attrs.field(factory=dict)
    tools: list[Tool] = attrs.field(factory=list)

    def reply(self, step: Sequence[Stored], retry_after_s: float | None) -> Reply:
        """The reply of one step, from all its events in order."""
        return Reply(lines=tuple(_Step(self, step, retry_after_s).lines()))

    def note(self, sentence: str) -> None:
        """Something couldn't be taken over as it was."""
        self.notes[sentence] = None

    def tool_for(self, called: ev.ToolCalled, outcome: Stored | None, takes_ms: int) -> str:
        """The name of a tool that answers as this call was answered: one tool for each different answer."""
        wanted = self._tool(called.name, outcome, takes_ms)
        if wanted is None:
            return self.redaction.name("tool", f"no tool {called.name}")
        for tool in self.tools:
            same = attrs.evolve(wanted, name=tool.name, takes_ms=tool.takes_ms)
            if tool.name.startswith(wanted.name) and tool == same:
                return tool.name
        fresh = attrs.evolve(wanted, name=self.redaction.fresh("tool", called.name))
        self.tools.append(fresh)
        return fresh.name

    def _tool(self, name: str, outcome: Stored | None, takes_ms: int) -> Tool | None:
        plain = Tool(name=self.redaction.name("called", name), takes_ms=takes_ms)
        match None if outcome is None else outcome.event:
            case ev.ToolSucceeded(output=output):
                return attrs.evolve(plain, output=self.redaction.json(output))
            case ev.ToolFailed(error=error) if error.type in NEVER_STARTED or _unusable(error):
                return None
            case ev.ToolFailed(error=error, outcome="failed"):
                return attrs.evolve(plain, fails=self.redaction.text(error.message))
            case ev.ToolFailed(error=ErrorInfo(type="tool-defect" | "invalid-output") as error):
                return attrs.evolve(plain, crashes=self.redaction.text(error.message))
            case ev.ToolFailed(error=ErrorInfo(type="invalid-input") as error):
                self.note("a call that its tool's schema refused is a tool that fails")
                return attrs.evolve(plain, fails=self.redaction.text(error.message))
            case _:
                return attrs.evolve(plain, takes_ms=HELD_UP_MS)


class _Step:
    """One step's events."""

    def __init__(self, script: Script, step: Sequence[Stored], retry_after_s: float | None) -> None:
        self._script = script
        self._redaction = script.redaction
        self._step = step
        self._events = [stored.event for stored in step]
        self._retry_after_s = retry_after_s
        self._outcomes = {
            stored.event.call_id: stored
            for stored in step
            if isinstance(stored.event, ev.ToolSucceeded | ev.ToolFailed)
        }
        self._hosted: set[str] = set()
        self._skip = 0
        self._streamed = any(isinstance(event, ev.StepStreamed) for event in self._events)

    def lines(self) -> list[Line]:
        """The reply's lines, each as long after the one before as its event was."""
        found: list[Line] = []
        since = self._step[0].created
        for place, stored in enumerate(self._step):
            if self._skip:
                self._skip -= 1
                continue
            for line in self._line(place):
                found.append(_later(line, stored.created - since))
                since = self._step[place + self._skip].created
        if not any(isinstance(event, ev.STEP_TERMINALS) for event in self._events):
            self._script.note("the last step is open in the log: its reply stops there")
            found += [] if self._streamed else [Finish()]
        return found

    def _line(self, place: int) -> list[Line]:
        event = self._events[place]
        match event:
            case ev.TextStarted() | ev.ReasoningStarted():
                return self._fragment(place, event)
            case ev.TextEnded(ordinal=ordinal, truncated=False):
                return [Event(event="text_end", id=f"f{ordinal}")]
            case ev.ReasoningEnded(ordinal=ordinal, truncated=False):
                return [Event(event="reasoning_end", id=f"f{ordinal}")]
            case ev.ToolInputStarted():
                return self._input(place, event)
            case ev.ToolInputEnded(call_id=call_id, truncated=False):
                return [Event(event="tool_input_end", call=self._call_id(call_id))]
            case ev.ToolCalled():
                return [self._call(place, event, raw=None)]
            case ev.ToolSucceeded(call_id=call_id, output=output) if call_id in self._hosted:
                return [Result(result=self._call_id(call_id), output=self._redaction.json(output))]
            case ev.ToolFailed(call_id=call_id, error=error) if call_id in self._hosted:
                if error.type != "hosted-failed":
                    return []  # the engine's own words: the provider gave no result
                return [Result(result=self._call_id(call_id), failed=self._redaction.text(error.message))]
            case _:
                return self._terminal(event)

    def _terminal(self, event: ev.Event) -> list[Line]:
        match event:
            case ev.StepStreamed():
                return [self._finish()]
            case ev.StepEnded() if not self._streamed:
                return [self._finish()]
            case ev.StepFailed(error=error) if not self._streamed:
                kind = error.type if error.type in get_args(ErrorKind) else UNNAMED[error.retryable]
                message = self._redaction.text(error.message)
                return [Error(error=kind, message=message, retry_after_s=self._retry_after_s)]  # type: ignore[arg-type]
            case ev.StepInterrupted() if not self._streamed:
                return [Stall(stall_ms=HELD_UP_MS), Finish()]
            case _:
                return []

    def _finish(self) -> Finish:
        """The provider's own end, as far as the step's terminal tells it."""
        for event in self._events:
            if isinstance(event, ev.StepEnded):
                usage = event.usage
                return Finish(
                    finish=self._redaction.text(event.finish),
                    input_tokens=usage.input_tokens,
                    output_tokens=usage.output_tokens,
                    reasoning_tokens=usage.reasoning_tokens,
                    cached_tokens=usage.cached_tokens,
                )
            if isinstance(event, ev.StepFailed) and event.error.type == "content_policy":
                return Finish(finish="content_filter")
        return Finish()

    # --- fragments -----------------------------------------------------------------------------------

    def _fragment(self, place: int, started: Fragment) -> list[Line]:
        """One line if nothing came between its start and its end, and single events otherwise."""
        kind = "text" if isinstance(started, ev.TextStarted) else "reasoning"
        ended = self._end_of(started)
        whole = "" if ended is None else self._redaction.text(ended.text)
        id = f"f{started.ordinal}"
        if ended is not None and not ended.truncated and self._next(place) is ended:
            self._skip = 1
            took_ms = _bounded(self._step[place + 1].created - self._step[place].created)
            if kind == "text":
                return [Text(text=whole, id=id, every_ms=took_ms)]
            return [Reasoning(reasoning=whole, id=id, every_ms=took_ms)]
        return [
            Event(event=f"{kind}_start", id=id),  # type: ignore[arg-type]
            Event(event=f"{kind}_chunk", id=id, text=whole),  # type: ignore[arg-type]
        ]

    def _end_of(self, started: Fragment) -> FragmentEnd | None:
        cls = ev.TextEnded if isinstance(started, ev.TextStarted) else ev.ReasoningEnded
        for event in self._events:
            if isinstance(event, cls) and event.ordinal == started.ordinal:
                return event
        return None

    def _next(self, place: int) -> ev.Event | None:
        return self._events[place + 1] if place + 1 < len(self._events) else None

    # --- calls ---------------------------------------------------------------------------------------

    def _input(self, place: int, started: ev.ToolInputStarted) -> list[Line]:
        ended, called = self._next(place), self._next(place + 1)
        if (
            isinstance(ended, ev.ToolInputEnded)
            and isinstance(called, ev.ToolCalled)
            and (ended.call_id, called.call_id) == (started.call_id, started.call_id)
        ):
            self._skip = 2
            return [self._call(place + 2, called, raw=ended.text)]
        call_id = self._call_id(started.call_id)
        raw = next(
            (
                event.text
                for event in self._events
                if isinstance(event, ev.ToolInputEnded) and event.call_id == started.call_id
            ),
            "",
        )
        name = self._name(started.call_id, started.name)
        return [
            Event(event="tool_input_start", call=call_id, name=name),
            Event(event="tool_input_chunk", call=call_id, text=self._redaction.text(raw)),
        ]

    def _name(self, call_id: str, name: str) -> str:
        """The name that the call has in the scenario, if it was ever made."""
        for place, event in enumerate(self._events):
            if isinstance(event, ev.ToolCalled) and event.call_id == call_id:
                return self._tool_name(place, event)
        return self._redaction.name("called", name)

    def _tool_name(self, place: int, called: ev.ToolCalled) -> str:
        outcome = self._outcomes.get(called.call_id)
        if called.hosted:
            return self._redaction.name("called", called.name)
        takes_ms = 0 if outcome is None else _bounded(outcome.created - self._step[place].created)
        return self._script.tool_for(called, outcome, takes_ms)

    def _call(self, place: int, called: ev.ToolCalled, raw: str | None) -> Call:
        if called.hosted:
            self._hosted.add(called.call_id)
        text = self._input_text(called, raw)
        return Call(
            call=self._call_id(called.call_id),
            tool=self._tool_name(place, called),
            input=self._redaction.json(called.input) if text is None else None,
            input_text=text,
            hosted=called.hosted,
            streamed=raw is not None,
        )

    def _input_text(self, called: ev.ToolCalled, raw: str | None) -> str | None:
        """The arguments word for word, where they weren't an object or a table of TOML can't hold them."""
        outcome = self._outcomes.get(called.call_id)
        failed = outcome.event if outcome is not None and isinstance(outcome.event, ev.ToolFailed) else None
        if failed is not None and _unusable(failed.error):
            stand_in = BROKEN_ARGUMENTS.get(failed.error.message, "{broken")
            return stand_in if raw is None else self._redaction.text(raw)
        if has_null(called.input):
            return self._redaction.text(json.dumps(called.input, ensure_ascii=False))
        return None

    def _call_id(self, call_id: str) -> str:
        return self._redaction.name("call", call_id)


def _unusable(error: ErrorInfo) -> bool:
    """Whether the engine refused a call's arguments before it looked for the tool."""
    return error.type == "invalid-input" and error.message.startswith("the arguments ")


def _bounded(ms: int) -> int:
    """A wait that a wall clock measured: it may have jumped."""
    return min(max(0, ms), HELD_UP_MS)


def _later(line: Line, ms: int) -> Line:
    delay: dict[str, Any] = {"delay_ms": _bounded(ms)}
    return line if isinstance(line, Stall) or ms <= 0 else attrs.evolve(line, **delay)


def steps_of(log: Sequence[Stored]) -> list[tuple[list[Stored], float | None]]:
    """The events of each step in the order of their starts, and the wait that followed it, if any."""
    steps: dict[str, list[Stored]] = {}
    waits: dict[str, float] = {}
    latest = None
    for stored in log:
        event = stored.event
        if isinstance(event, ev.StepEvent):
            latest = event.assistant_message_id
            steps.setdefault(latest, []).append(stored)
        elif isinstance(event, ev.RetryScheduled) and latest is not None:
            waits[latest] = max(0, event.at - stored.created) / 1000
    opened = {message_id: step for message_id, step in steps.items() if not _unopened(step)}
    return [(step, waits.get(message_id) or None) for message_id, step in opened.items()]


def _unopened(step: Sequence[Stored]) -> bool:
    """Whether a step was cut off before anything came: tied to its start, that is before its request."""
    return len(step) == 2 and isinstance(step[1].event, ev.StepInterrupted)


def payload_text(payload: JSON) -> str:
    """An input's text; other payloads as their JSON."""
    if isinstance(payload, dict) and isinstance(payload.get("text"), str):
        return str(payload["text"])
    return payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
