"""The step as a pure machine: `decide(state, input) -> Decision`.

The publisher commits a decision's durable events and only then replaces its state; a decision without
durable events replaces it at once. Memory thus follows the log: a fragment that memory knows and the log
doesn't, or the reverse, can't come to be.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from engine import events as ev
from engine import facts as fact
from engine import ingest
from engine.buffer import Buffer
from engine.errors import ProviderFault
from engine.facts import FragmentKey
from engine.limits import EngineConfig
from engine.ports import (
    Finish,
    ProviderError,
    ProviderEvent,
    ReasoningChunk,
    ReasoningEnd,
    ReasoningStart,
    TextChunk,
    TextEnd,
    TextStart,
    ToolCall,
    ToolInputChunk,
    ToolInputEnd,
    ToolInputStart,
    ToolResult,
)
from engine.records import ErrorInfo, Usage
from engine.retry import Failure, failure
from engine.step_events import fragment_delta, fragment_ended, fragment_started, ids_of, tool_failed
from engine.step_records import (
    Closing,
    Decision,
    Ended,
    Failed,
    Progress,
    StepInput,
    StepState,
    StreamEnded,
    StreamFailed,
    ToolDone,
)

# What a step is told and decides is part of this module's face: whoever asks `decide` imports both from here.
# fmt: off
__all__ = [
    "Closing", "Decision", "Ended", "Failed", "Progress", "StepInput", "StepState", "StreamEnded",
    "StreamFailed", "ToolDone", "decide", "decide_all",
]
# fmt: on


def decide_all(state: StepState, inputs: Sequence[StepInput], config: EngineConfig) -> Decision:
    """One decision for all `inputs`; those after the step's closing are dropped."""
    durable: list[ev.Event] = []
    live: list[ev.Event] = []
    start: list[ev.ToolCalled] = []
    for item in inputs:
        decision = decide(state, item, config)
        state = decision.state
        durable += decision.durable
        live += decision.live
        start += decision.start
        if decision.closing is not None:
            break
    return Decision(
        state=state,
        durable=tuple(durable),
        live=tuple(event for event in live if _still_open(state, event)),
        start=tuple(start),
        closing=_closing(state),
    )


def _still_open(state: StepState, event: ev.Event) -> bool:
    """Live events are broadcast after the decision's durable ones: one for a fragment that ended among these
    would come too late, and its boundary event carries the whole text anyway."""
    match event:
        case ev.TextDelta():
            return ("text", event.ordinal) in state.texts
        case ev.ReasoningDelta():
            return ("reasoning", event.ordinal) in state.texts
        case ev.ToolInputDelta():
            return ("tool.input", event.call_id) in state.texts
        case ev.ToolProgress():
            return event.call_id in state.facts.open_calls
    return True


def decide(state: StepState, item: StepInput, config: EngineConfig) -> Decision:
    """The decision for one input."""
    work = _Work(state, config)
    match item:
        case ToolDone():
            work.tool_done(item)
        case Progress():
            work.progress(item)
        case StreamFailed():
            work.stream_failed(work.failure(item.kind, item.message))
        case StreamEnded():
            work.stream_ended()
        case _:
            work.provider(item)
    return work.decision()


def _closing(state: StepState) -> Closing | None:
    if state.facts.open_calls or state.facts.terminal is not None:
        return None
    if state.failed is not None:
        return Failed(failure=state.failed, usage=state.usage, visible=state.facts.visible)
    if state.finish is None or not state.facts.streamed:
        return None
    if state.finish in ("content_filter", "refusal"):
        error = ErrorInfo(type="content_policy", message=f"the provider stopped its answer: {state.finish}")
        return Failed(failure=Failure(error=error), usage=state.usage, visible=True)
    return Ended(finish=state.finish, usage=state.usage or Usage(), calls=bool(state.facts.calls))


class _Work:
    """One decision in the making. Each method adds to it; a `ProviderFault` turns into a failed step."""

    def __init__(self, state: StepState, config: EngineConfig) -> None:
        self.state = state
        self.config = config
        self.durable: list[ev.Event] = []
        self.live: list[ev.Event] = []
        self.start: list[ev.ToolCalled] = []

    def decision(self) -> Decision:
        return Decision(
            state=self.state,
            durable=tuple(self.durable),
            live=tuple(self.live),
            start=tuple(self.start),
            closing=_closing(self.state),
        )

    def emit(self, event: ev.Event) -> None:
        self.durable.append(event)
        self.state = attrs.evolve(self.state, facts=fact.apply(self.state.facts, event))

    @property
    def ids(self) -> dict[str, str]:
        return ids_of(self.state.facts)

    # --- the stream ----------------------------------------------------------------------------------

    @property
    def _stream_is_over(self) -> bool:
        return self.state.failed is not None or self.state.facts.streamed

    def provider(self, item: ProviderEvent) -> None:
        if self._stream_is_over:
            return  # what a failed stream still says has no place in the log
        before = self.state, list(self.durable), list(self.live)
        try:
            if not isinstance(item, ProviderEvent):
                raise ProviderFault(f"{type(item).__name__} isn't an event of a provider")
            self._provider(ingest.checked(item, self.config))
        except ProviderFault as fault:
            self.state, self.durable, self.live = before
            self.stream_failed(self.failure("provider_fault", str(fault)))

    def _provider(self, item: ProviderEvent) -> None:
        if self.state.finish is not None and not isinstance(item, ProviderError):
            raise ProviderFault(f"{type(item).__name__} came after the finish")
        match item:
            case ProviderError():
                self.stream_failed(self.failure(item.kind, item.message, item.retry_after_s))
            case TextStart():
                self._start("text", item.id, ("text", self._ordinal()))
            case ReasoningStart():
                self._start("reasoning", item.id, ("reasoning", self._ordinal()))
            case ToolInputStart():
                self._tool_input_start(item)
            case TextChunk():
                self._chunk("text", item.id, item.text)
            case ReasoningChunk():
                self._chunk("reasoning", item.id, item.text)
            case ToolInputChunk():
                self._chunk("tool.input", item.call_id, item.text)
            case TextEnd():
                self._end(self._open_key("text", item.id))
            case ReasoningEnd():
                self._end(self._open_key("reasoning", item.id))
            case ToolInputEnd():
                self._end(self._open_key("tool.input", item.call_id))
            case ToolCall():
                self._call(item)
            case ToolResult():
                self._result(item)
            case Finish():
                self._finish(item)
            case _:
                raise ProviderFault(f"{type(item).__name__} isn't an event of a provider")

    def failure(self, kind: str, message: str, retry_after_s: float | None = None) -> Failure:
        return failure(kind, ingest.error_text(message, self.config), retry_after_s)

    def _ordinal(self) -> int:
        return sum(1 for kind, _ in self.state.facts.fragments if kind != "tool.input")

    def _start(self, kind: str, id: str, key: FragmentKey) -> None:
        if (kind, id) in self.state.open_ids:
            raise ProviderFault(f"{kind} {id!r} was started twice")
        self.emit(fragment_started(self.ids, key, self.state.input_names))
        self.state = attrs.evolve(
            self.state,
            open_ids={**self.state.open_ids, (kind, id): key},
            texts={**self.state.texts, key: Buffer(bytes_max=self.config.fragment_bytes_max)},
        )

    def _tool_input_start(self, item: ToolInputStart) -> None:
        key: FragmentKey = ("tool.input", item.call_id)
        if key in self.state.facts.fragments or item.call_id in self.state.facts.calls:
            raise ProviderFault(f"the input of call {item.call_id!r} was started twice")
        names = {**self.state.input_names, item.call_id: item.name}
        self.state = attrs.evolve(self.state, input_names=names)
        self._start("tool.input", item.call_id, key)

    def _open_key(self, kind: str, id: str) -> FragmentKey:
        key = self.state.open_ids.get((kind, id))
        if key is None:
            raise ProviderFault(f"{kind} {id!r} isn't open: it never started, or has ended")
        return key

    def _chunk(self, kind: str, id: str, text: str) -> None:
        key = self._open_key(kind, id)
        before = self.state.texts[key]
        buffer = before.add(text)
        self.state = attrs.evolve(self.state, texts={**self.state.texts, key: buffer})
        added = buffer.since(before)
        if added:
            self.live.append(fragment_delta(self.ids, key, added))

    def _end(self, key: FragmentKey, *, truncated: bool = False) -> None:
        self.emit(fragment_ended(self.ids, key, self.state.texts[key], truncated=truncated))
        self.state = attrs.evolve(
            self.state,
            open_ids={i: k for i, k in self.state.open_ids.items() if k != key},
            texts={k: buffer for k, buffer in self.state.texts.items() if k != key},
        )

    def _end_all(self, *, truncated: bool) -> None:
        for key in self.state.facts.open_fragments:
            self._end(key, truncated=truncated)

    def _finish(self, item: Finish) -> None:
        usage = Usage(
            input_tokens=item.input_tokens,
            output_tokens=item.output_tokens,
            reasoning_tokens=item.reasoning_tokens,
            cached_tokens=item.cached_tokens,
        )
        self.state = attrs.evolve(self.state, finish=item.reason, usage=usage)

    def stream_ended(self) -> None:
        if self._stream_is_over:
            return
        if self.state.finish in (None, "unknown", "error"):
            said = "without a finish" if self.state.finish is None else f"with finish {self.state.finish!r}"
            self.stream_failed(self.failure("incomplete", f"the provider's stream ended {said}"))
            return
        self._end_all(truncated=False)
        self._fail_hosted("result-missing", "the provider gave no result for this call")
        self.emit(ev.StepStreamed(**self.ids))

    def stream_failed(self, failed: Failure) -> None:
        if self._stream_is_over:
            return
        if self.state.finish is not None and failed.error.type == "transport":
            self.stream_ended()  # the answer was whole; only closing the connection failed
            return
        self.state = attrs.evolve(self.state, failed=failed)
        self._end_all(truncated=True)
        self._fail_hosted("provider-failed", "the provider failed before this call had a result")

    def _fail_hosted(self, type: str, message: str) -> None:
        for call_id in self.state.facts.open_calls:
            if self.state.facts.calls[call_id].hosted:
                self.emit(tool_failed(self.ids, call_id, type, message, "unknown"))

    # --- tools ---------------------------------------------------------------------------------------

    def _call(self, item: ToolCall) -> None:
        if item.call_id in self.state.facts.calls:
            raise ProviderFault(f"call {item.call_id!r} was made twice")
        began_as = self.state.input_names.get(item.call_id)
        if began_as is not None and began_as != item.name:
            raise ProviderFault(f"call {item.call_id!r} began as {began_as!r} and became {item.name!r}")
        key: FragmentKey = ("tool.input", item.call_id)
        if key in self.state.facts.open_fragments:
            self._end(key)
        arguments, problem = ingest.parse_arguments(item.input, self.config.fragment_bytes_max)
        called = ev.ToolCalled(
            **self.ids, call_id=item.call_id, name=item.name, input=arguments, hosted=item.hosted
        )
        self.emit(called)
        if problem is not None:
            outcome: ev.Outcome = "unknown" if item.hosted else "not_run"
            self.emit(tool_failed(self.ids, item.call_id, "invalid-input", problem, outcome))
            if item.hosted:  # the provider may have made sense of it, and go on to give a result
                self.state = attrs.evolve(self.state, refused=self.state.refused | {item.call_id})
        elif not item.hosted:
            self._start_or_refuse(called)

    def _start_or_refuse(self, called: ev.ToolCalled) -> None:
        if not self.state.tools_allowed:
            text = "the step limit of this turn is reached: tools are switched off"
            self.emit(tool_failed(self.ids, called.call_id, "tools-disabled", text, "not_run"))
        elif called.name not in self.state.tools:
            text = f"there is no tool named {called.name!r}"
            self.emit(tool_failed(self.ids, called.call_id, "unknown-tool", text, "not_run"))
        else:
            self.start.append(called)

    def _result(self, item: ToolResult) -> None:
        call = self.state.facts.calls.get(item.call_id)
        if call is None or not call.hosted:
            raise ProviderFault(f"a result for {item.call_id!r}, which is no hosted call of this step")
        if item.call_id in self.state.refused:
            self.state = attrs.evolve(self.state, refused=self.state.refused - {item.call_id})
            return
        if call.settled:
            raise ProviderFault(f"a second result for call {item.call_id!r}")
        if item.error is not None:
            text = ingest.error_text(item.error, self.config)
            self.emit(tool_failed(self.ids, item.call_id, "hosted-failed", text, "failed"))
            return
        output, truncated = ingest.hosted_output(item.call_id, item.output, self.config)
        self.emit(ev.ToolSucceeded(**self.ids, call_id=item.call_id, output=output, truncated=truncated))

    def tool_done(self, item: ToolDone) -> None:
        self.emit(item.event)

    def progress(self, item: Progress) -> None:
        if item.call_id in self.state.facts.open_calls:
            self.live.append(ev.ToolProgress(**self.ids, call_id=item.call_id, value=item.value))
