"""The lines of a script: frozen classes, each of which knows the moves it makes in a stream.

`leads` is the key that tells the lines apart where a script is written as data. `delay_ms` is waited before
the line, `every_ms` before each fragment inside one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import attrs

from engine import ports
from engine.codec import encode_json
from engine.errors import FencepostError
from engine.records import JSON
from engine.shape import Bound


class ScriptError(FencepostError, ValueError):
    """A script doesn't say anything that can be played. The author's fault: the message lists every flaw
    with its place; mend the script."""


# --- what is played ----------------------------------------------------------------------------------


@attrs.frozen
class Wait:
    """Say nothing for so long."""

    ms: int


@attrs.frozen
class Emit:
    """Hand out one event."""

    event: ports.ProviderEvent


@attrs.frozen
class Break:
    """Raise out of the stream."""

    message: str


Move = Wait | Emit | Break

Millis = Annotated[int, Bound(0)]
Count = Annotated[int, Bound(1)]
Texts = str | tuple[str, ...]

# --- lines -------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Text:
    """A run of text: start, chunks, end. A list of texts is its own chunks; `repeat` lengthens a text."""

    leads: ClassVar[str] = "text"

    text: Texts
    chunks: Count = 1
    repeat: Count = 1
    id: str | None = None
    every_ms: Millis = 0
    delay_ms: Millis = 0

    def __attrs_post_init__(self) -> None:
        _check_chunks(self.text, self.chunks)

    def moves(self, nth: int) -> Iterator[Move]:
        id = self.id or _default_id("text", nth)
        yield Emit(ports.TextStart(id=id))
        for piece in _pieces(self.text, self.chunks, self.repeat):
            yield Wait(self.every_ms)
            yield Emit(ports.TextChunk(id=id, text=piece))
        yield Emit(ports.TextEnd(id=id))


@attrs.frozen(kw_only=True)
class Reasoning:
    """A run of reasoning, as `Text`."""

    leads: ClassVar[str] = "reasoning"

    reasoning: Texts
    chunks: Count = 1
    repeat: Count = 1
    id: str | None = None
    every_ms: Millis = 0
    delay_ms: Millis = 0

    def __attrs_post_init__(self) -> None:
        _check_chunks(self.reasoning, self.chunks)

    def moves(self, nth: int) -> Iterator[Move]:
        id = self.id or _default_id("reasoning", nth)
        yield Emit(ports.ReasoningStart(id=id))
        for piece in _pieces(self.reasoning, self.chunks, self.repeat):
            yield Wait(self.every_ms)
            yield Emit(ports.ReasoningChunk(id=id, text=piece))
        yield Emit(ports.ReasoningEnd(id=id))


@attrs.frozen(kw_only=True)
class Call:
    """A tool call named `call`. Its arguments are `input`, or `input_text` word for word, valid JSON or not.

    `streamed` sends them as tool input fragments first.
    """

    leads: ClassVar[str] = "call"

    call: str
    tool: str
    input: JSON = None
    input_text: str | None = None
    hosted: bool = False
    streamed: bool = False
    chunks: Count = 1
    every_ms: Millis = 0
    delay_ms: Millis = 0

    def __attrs_post_init__(self) -> None:
        if self.input is not None and self.input_text is not None:
            raise ScriptError("input and input_text don't go together: give one")
        if not self.streamed and (self.chunks > 1 or self.every_ms):
            raise ScriptError("chunks and every_ms need streamed = true")

    def moves(self, nth: int) -> Iterator[Move]:
        text = self.input_text
        if text is None:
            text = encode_json({} if self.input is None else self.input).decode()
        if self.streamed:
            yield Emit(ports.ToolInputStart(call_id=self.call, name=self.tool))
            for piece in _pieces(text, self.chunks, 1):
                yield Wait(self.every_ms)
                yield Emit(ports.ToolInputChunk(call_id=self.call, text=piece))
            yield Emit(ports.ToolInputEnd(call_id=self.call))
        yield Emit(ports.ToolCall(call_id=self.call, name=self.tool, input=text, hosted=self.hosted))


@attrs.frozen(kw_only=True)
class Result:
    """The result of the hosted call named `result`: `output`, or `failed` with a message."""

    leads: ClassVar[str] = "result"

    result: str
    output: JSON = None
    failed: str | None = None
    delay_ms: Millis = 0

    def __attrs_post_init__(self) -> None:
        if self.output is not None and self.failed is not None:
            raise ScriptError("output and failed don't go together: give one")

    def moves(self, nth: int) -> Iterator[Move]:
        yield Emit(ports.ToolResult(call_id=self.result, output=self.output, error=self.failed))


@attrs.frozen(kw_only=True)
class Finish:
    """The answer is complete, for the reason `finish`."""

    leads: ClassVar[str] = "finish"

    finish: str = "stop"
    input_tokens: Annotated[int, Bound(0)] = 0
    output_tokens: Annotated[int, Bound(0)] = 0
    reasoning_tokens: Annotated[int, Bound(0)] = 0
    cached_tokens: Annotated[int, Bound(0)] = 0
    delay_ms: Millis = 0

    def moves(self, nth: int) -> Iterator[Move]:
        yield Emit(
            ports.Finish(
                reason=self.finish,
                input_tokens=self.input_tokens,
                output_tokens=self.output_tokens,
                reasoning_tokens=self.reasoning_tokens,
                cached_tokens=self.cached_tokens,
            )
        )


ErrorKind = Literal[
    "rate_limit",
    "overloaded",
    "internal",
    "transport",
    "incomplete",
    "unknown",
    "auth",
    "quota",
    "content_policy",
    "invalid_request",
    "unsupported",
]


@attrs.frozen(kw_only=True)
class Error:
    """An error that the provider reports in its stream. Any `retry_after_s` goes, a negative one too."""

    leads: ClassVar[str] = "error"

    error: ErrorKind
    message: str = ""
    retry_after_s: Annotated[float, Bound()] | None = None
    delay_ms: Millis = 0

    def moves(self, nth: int) -> Iterator[Move]:
        yield Emit(
            ports.ProviderError(kind=self.error, message=self.message, retry_after_s=self.retry_after_s)
        )


EventKind = Literal[
    "text_start",
    "text_chunk",
    "text_end",
    "reasoning_start",
    "reasoning_chunk",
    "reasoning_end",
    "tool_input_start",
    "tool_input_chunk",
    "tool_input_end",
]

_EVENTS: Mapping[str, type[ports.ProviderEvent]] = {
    "text_start": ports.TextStart,
    "text_chunk": ports.TextChunk,
    "text_end": ports.TextEnd,
    "reasoning_start": ports.ReasoningStart,
    "reasoning_chunk": ports.ReasoningChunk,
    "reasoning_end": ports.ReasoningEnd,
    "tool_input_start": ports.ToolInputStart,
    "tool_input_chunk": ports.ToolInputChunk,
    "tool_input_end": ports.ToolInputEnd,
}


@attrs.frozen(kw_only=True)
class Event:
    """One single event, legal where it stands or not: for the orders that no honest provider sends."""

    leads: ClassVar[str] = "event"

    event: EventKind
    id: str | None = None
    text: str | None = None
    call: str | None = None
    name: str | None = None
    delay_ms: Millis = 0

    def __attrs_post_init__(self) -> None:
        fields = attrs.fields_dict(_EVENTS[self.event])
        for key, value in self._said().items():
            wanted = {"call": "call_id"}.get(key, key)
            if value is not None and wanted not in fields:
                raise ScriptError(f"{self.event} has no {key}")
            if value is None and wanted in fields and fields[wanted].default is attrs.NOTHING:
                raise ScriptError(f"{self.event} needs {key}")

    def _said(self) -> dict[str, str | None]:
        return {"id": self.id, "text": self.text, "call": self.call, "name": self.name}

    def moves(self, nth: int) -> Iterator[Move]:
        given = {key: value for key, value in self._said().items() if value is not None}
        if "call" in given:
            given["call_id"] = given.pop("call")
        yield Emit(_EVENTS[self.event](**given))


@attrs.frozen(kw_only=True)
class Stall:
    """Nothing for `stall_ms`; then the script goes on."""

    leads: ClassVar[str] = "stall_ms"

    stall_ms: Millis

    def moves(self, nth: int) -> Iterator[Move]:
        yield Wait(self.stall_ms)


@attrs.frozen(kw_only=True)
class Cut:
    """The connection breaks: the stream raises."""

    leads: ClassVar[str] = "cut"

    cut: str
    delay_ms: Millis = 0

    def moves(self, nth: int) -> Iterator[Move]:
        yield Break(self.cut)


# --- lines about the request itself: their place in the reply says nothing --------------------------


@attrs.frozen(kw_only=True)
class Unreachable:
    """The request can't be opened: opening raises, after `delay_ms`."""

    leads: ClassVar[str] = "unreachable"

    unreachable: str
    delay_ms: Millis = 0


@attrs.frozen(kw_only=True)
class OnClose:
    """Closing the request raises. The error replaces what was under way (a cancellation, say), or `joins`
    it in an exception group."""

    leads: ClassVar[str] = "on_close"

    on_close: str
    joins: bool = False


@attrs.frozen(kw_only=True)
class SlowClose:
    """Closing the request takes `close_ms`, whatever is cancelled."""

    leads: ClassVar[str] = "close_ms"

    close_ms: Millis


Spoken = Text | Reasoning | Call | Result | Finish | Error | Event | Stall | Cut
Line = Spoken | Unreachable | OnClose | SlowClose
LINES: tuple[type[Line], ...] = (
    Text,
    Reasoning,
    Call,
    Result,
    Finish,
    Error,
    Event,
    Stall,
    Cut,
    Unreachable,
    OnClose,
    SlowClose,
)
ABOUT_REQUEST = (Unreachable, OnClose, SlowClose)


def _check_chunks(text: Texts, chunks: int) -> None:
    if chunks > 1 and not isinstance(text, str):
        raise ScriptError("chunks splits one text; a list of texts is its own chunks")


def _pieces(text: Texts, chunks: int, repeat: int) -> Sequence[str]:
    """`text` in exactly `chunks` pieces of nearly equal length, some of them empty if it is short."""
    if not isinstance(text, str):
        return text * repeat
    text *= repeat
    return [text[len(text) * i // chunks : len(text) * (i + 1) // chunks] for i in range(chunks)]


def _default_id(kind: str, nth: int) -> str:
    """A second text of a reply is another fragment, so it gets another id."""
    return kind if nth == 1 else f"{kind}-{nth}"
