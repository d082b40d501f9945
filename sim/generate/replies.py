"""What the model of a generated world says: fixed replies that are known to matter, and composed ones.

Every choice is a draw of the tape's stream `provider`, 0 the plainest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from engine.codec import encode_json
from engine.providers.script import Reply, parse_reply
from engine.records import JSON
from sim.scenario import Mangle
from sim.scenario.values import Mangling
from sim.tape import Tape

T = TypeVar("T")

Lines = list[Mapping[str, Any]]

FIXED: Sequence[Sequence[Mapping[str, Any]]] = (
    ({"text": "Done"}, {"finish": "stop"}),
    ({"text": "A longer answer", "chunks": 3, "every_ms": 200}, {"finish": "stop"}),
    ({"call": "c1", "tool": "quick", "input": {"n": 1}}, {"finish": "tool_calls"}),
    (
        {"text": "Looking", "delay_ms": 300},
        {"call": "c1", "tool": "slow", "input": {}, "streamed": True},
        {"call": "c2", "tool": "quick", "input": {}},
        {"finish": "tool_calls"},
    ),
    ({"error": "rate_limit"},),
    ({"error": "rate_limit", "retry_after_s": 20.0},),
    ({"text": "Cut off"}, {"cut": "the connection was reset"}),
    ({"text": "Half"},),
    ({"reasoning": "Hm"}, {"text": "Slow", "chunks": 5, "every_ms": 9000}, {"finish": "stop"}),
    ({"event": "text_chunk", "id": "x", "text": "no start"}, {"finish": "stop"}),
    ({"call": "c1", "tool": "stubborn", "input": {}}, {"finish": "tool_calls"}),
    ({"call": "c1", "tool": "quick", "input_text": "{broken"}, {"finish": "tool_calls"}),
    ({"text": "Refused"}, {"finish": "content_filter"}),
    ({"error": "auth", "message": "no key"},),
    ({"text": "Closing badly"}, {"finish": "stop"}, {"on_close": "reset while closing"}),
    ({"text": "Stalling"}, {"stall_ms": 200_000}, {"finish": "stop"}),
)

CALLS: Mapping[str, Sequence[Mapping[str, JSON]]] = {
    "quick": ({"n": 1}, {}),
    "slow": ({},),
    "odd": ({}, {"why": "to see"}),
    "stubborn": ({},),
    "absent": ({},),
}
"""Tools that composed replies call, and with what, where a project has none of its own."""

PARTS_MAX = 4
TEXTS = ("Done", "A longer answer to that", "", "Grüße 🙂", "0123456789" * 300)
PAUSES_MS = (0, 100, 700, 4_000)
STALLS_MS = (500, 9_000, 31_000, 130_000)
REASONS = ("stop", "tool_calls", "length", "content_filter", "refusal", "unknown", "error", "invented")
ERRORS = ("overloaded", "internal", "transport", "incomplete", "unknown", "quota", "invalid_request")
MANGLINGS: Sequence[Mangling] = ("drop", "repeat", "swap", "nulls", "foreign")
MANGLED_EVENTS = 8
"""Which events of a reply may be mangled: the first so many."""


class Speech:
    """Draws replies. `calls` are the tools they call and the inputs, by the tool's name."""

    def __init__(self, tape: Tape, calls: Mapping[str, Sequence[Mapping[str, JSON]]]) -> None:
        self._tape = tape
        self._calls = calls or CALLS
        self._made = 0

    def replies(self) -> tuple[Reply, ...]:
        """What one session's model says; the last reply, which is repeated, is a plain one."""
        count = 1 + self._draw("number of replies", 4)
        return (*(self._reply() for _ in range(count)), parse_reply(FIXED[0], "reply"))

    def mangle(self) -> Mangle:
        """One event of one of the first requests that doesn't arrive as it was sent."""
        return Mangle(
            request=1 + self._draw("mangled request", 3),
            event=1 + self._draw("mangled event", MANGLED_EVENTS),
            does=self._pick("mangling", MANGLINGS),
        )

    def _draw(self, label: str, bound: int) -> int:
        return self._tape.draw("provider", label, bound)

    def _pick(self, label: str, options: Sequence[T]) -> T:
        return options[self._draw(label, len(options))]

    def _reply(self) -> Reply:
        if self._draw("composed", 3) < 2:
            return parse_reply(self._pick("reply", FIXED), "reply")
        self._made = 0
        if self._draw("unreachable", 12) == 11:
            delay_ms = self._pick("pause", PAUSES_MS)
            return parse_reply([{"unreachable": "connection refused", "delay_ms": delay_ms}], "reply")
        lines = [line for _ in range(1 + self._draw("parts", PARTS_MAX)) for line in self._part()]
        return parse_reply([*lines, *self._end(), *self._close()], "reply")

    # --- parts ---------------------------------------------------------------------------------------

    def _part(self) -> Lines:
        match self._draw("part", 7):
            case 0 | 1:
                return [{"text": self._pick("text", TEXTS), **self._fragments()}]
            case 2 | 3:
                return [self._call()]
            case 4:
                return [{"reasoning": self._pick("text", TEXTS), **self._fragments()}]
            case 5:
                return [{"stall_ms": self._pick("stall", STALLS_MS)}]
        return self._pick("strange", (self._hosted, self._woven_texts, self._woven_calls))()

    def _fragments(self) -> Mapping[str, int]:
        return {"chunks": 1 + self._draw("chunks", 4), "every_ms": self._pick("pause", PAUSES_MS)}

    def _fresh(self) -> str:
        """The next call's id: unlike those before it, but for a provider that makes a call twice."""
        self._made += self._draw("same call", 8) < 7 or self._made == 0
        return f"c{self._made}"

    def _call(self) -> Mapping[str, Any]:
        tool = self._pick("tool", list(self._calls))
        said: dict[str, Any] = {"call": self._fresh(), "tool": tool}
        given = encode_json(dict(self._pick("input", self._calls[tool]))).decode()
        match self._draw("arguments", 8):
            case 6:
                given = given[:-1]
            case 7:
                given = f"[{given}]"
        said["input_text"] = given
        if self._draw("streamed", 2):
            said |= {"streamed": True, **self._fragments()}
        return said

    def _hosted(self) -> Lines:
        call_id = self._fresh()
        called = {"call": call_id, "tool": "web_search", "hosted": True, "input": {}}
        result = {"result": call_id, "output": "found", "delay_ms": self._pick("pause", PAUSES_MS)}
        return [called, result] if self._draw("result missing", 2) == 0 else [called]

    def _woven_texts(self) -> Lines:
        """Two runs of text at once, the outer one perhaps never ended."""
        events = ["text_start l", "text_start r", "text_chunk r", "text_chunk l", "text_end r", "text_end l"]
        lines: Lines = []
        for event in events[: len(events) - self._draw("left open", 2)]:
            kind, id = event.split()
            text = {"text": f"{id} "} if kind == "text_chunk" else {}
            lines.append({"event": kind, "id": id, **text})
        return lines

    def _woven_calls(self) -> Lines:
        """Two calls of one tool, whose arguments arrive in turns."""
        ids = self._fresh(), self._fresh()
        tool = self._pick("tool", list(self._calls))
        given = encode_json(dict(self._pick("input", self._calls[tool]))).decode()
        return [
            *({"event": "tool_input_start", "call": id, "name": tool} for id in ids),
            *({"event": "tool_input_chunk", "call": id, "text": given[:1]} for id in ids),
            *({"event": "tool_input_chunk", "call": id, "text": given[1:]} for id in reversed(ids)),
            *({"call": id, "tool": tool, "input_text": given} for id in ids),
        ]

    # --- ends ----------------------------------------------------------------------------------------

    def _end(self) -> Lines:
        match self._draw("end", 8):
            case 0 | 1 | 2 | 3:
                return [{"finish": "tool_calls" if self._made else "stop", "output_tokens": 7}]
            case 4:
                return [{"finish": self._pick("reason", REASONS)}]
            case 5:
                return [{"cut": "the connection was reset", "delay_ms": self._pick("pause", PAUSES_MS)}]
            case 6:
                return [*self._pick("finished first", ([], [{"finish": "stop"}])), self._error()]
        return []

    def _error(self) -> Mapping[str, Any]:
        error: dict[str, Any] = {"error": self._pick("error", ERRORS), "message": "try later"}
        if self._draw("asks to wait", 2):
            error["retry_after_s"] = self._pick("wait", (3.0, 0.0, -1.0, 40.0))
        return error

    def _close(self) -> Lines:
        match self._draw("close", 8):
            case 5:
                return [{"on_close": "reset while closing"}]
            case 6:
                return [{"on_close": "reset while closing", "joins": True}]
            case 7:
                return [{"close_ms": self._pick("close", (200, 3_000, 40_000))}]
        return []
