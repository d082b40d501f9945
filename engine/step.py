"""The step as a pure machine: `decide(state, input) -> Decision`.

The publisher commits a decision's durable events and only then replaces its state; a decision without
durable events replaces it at once. Memory thus follows the log: a fragment that memory knows and the log
doesn't, or the reverse, can't come to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from engine import events as ev
from engine import facts as fact
from engine.buffer import Buffer
from engine.codec import clean_json, clean_text, decode_json
from engine.errors import EventError, ProviderFault
from engine.facts import FragmentKey, StepFacts
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
from engine.records import JSON, ErrorInfo, Usage
from engine.retry import Failure, failure

# --- what a step is told, besides provider events ----------------------------------------------------


@attrs.frozen(kw_only=True)
class StreamEnded:
    """The provider's body ended without an error."""


@attrs.frozen(kw_only=True)
class StreamFailed:
    """The request failed outside its stream of events: raised, or was silent for too long."""

    kind: str
    message: str


@attrs.frozen(kw_only=True)
class ToolDone:
    """A local tool's outcome; `event` is the call's terminal."""

    event: ev.ToolSucceeded | ev.ToolFailed


@attrs.frozen(kw_only=True)
class Progress:
    """A JSON value a running tool wants to be shown now."""

    call_id: str
    value: JSON


StepInput = ProviderEvent | StreamEnded | StreamFailed | ToolDone | Progress

# --- state and decision ------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class StepState:
    """The publisher's memory of its open step. `facts` is what the log says; the rest is not logged yet."""

    facts: StepFacts
    tools: frozenset[str]  #: names of local tools the model may call
    tools_allowed: bool = True
    open_ids: Mapping[tuple[str, str], FragmentKey] = attrs.field(factory=dict)
    texts: Mapping[FragmentKey, Buffer] = attrs.field(factory=dict)  #: of open fragments only
    input_names: Mapping[str, str] = attrs.field(factory=dict)  #: call id to the name its input began with
    usage: Usage | None = None
    finish: str | None = None
    failed: Failure | None = None


@attrs.frozen(kw_only=True)
class Ended:
    """The step is over and good; `calls` says whether tool results are owed to the model."""

    finish: str
    usage: Usage
    calls: bool


@attrs.frozen(kw_only=True)
class Failed:
    """The step is over and failed; `visible` says whether it produced something before."""

    failure: Failure
    usage: Usage | None
    visible: bool


Closing = Ended | Failed


@attrs.frozen(kw_only=True)
class Decision:
    """What to commit, to broadcast and to start, and the state that holds once it is committed."""

    state: StepState
    durable: tuple[ev.Event, ...] = ()
    live: tuple[ev.Event, ...] = ()
    start: tuple[ev.ToolCalled, ...] = ()
    closing: Closing | None = None


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
    # a call that was settled within the same decision (refused) never starts
    settled = {e.call_id for e in durable if isinstance(e, ev.ToolFailed | ev.ToolSucceeded)}
    return Decision(
        state=state,
        durable=tuple(durable),
        live=tuple(live),
        start=tuple(call for call in start if call.call_id not in settled),
        closing=_closing(state),
    )


def decide(state: StepState, item: StepInput, config: EngineConfig) -> Decision:
    """The decision for one input."""
    work = _Work(state, config)
    match item:
        case ToolDone():
            work.tool_done(item)
        case Progress():
            work.progress(item)
        case StreamFailed():
            work.stream_failed(failure(item.kind, item.message))
        case StreamEnded():
            work.stream_ended()
        case ProviderError():
            work.stream_failed(failure(item.kind, clean_text(item.message), item.retry_after_s))
        case ProviderEvent():
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
        facts = self.state.facts
        return {"session_id": facts.session_id, "assistant_message_id": facts.message_id}

    # --- the stream ----------------------------------------------------------------------------------

    def provider(self, item: ProviderEvent) -> None:
        if self.state.failed is not None:
            return  # what a failed stream still says has no place in the log
        before = self.state, list(self.durable), list(self.live)
        try:
            if self.state.finish is not None:
                raise ProviderFault(f"{type(item).__name__} came after the finish")
            self._provider(item)
        except ProviderFault as fault:
            self.state, self.durable, self.live = before
            self.stream_failed(failure("provider_fault", str(fault)))

    def _provider(self, item: ProviderEvent) -> None:
        match item:
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

    def _ordinal(self) -> int:
        return sum(1 for kind, _ in self.state.facts.fragments if kind != "tool.input")

    def _start(self, kind: str, id: str, key: FragmentKey) -> None:
        if (kind, id) in self.state.open_ids:
            raise ProviderFault(f"{kind} {id!r} was started twice")
        self.emit(_started(self.ids, key, self.state.input_names))
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
        buffer = self.state.texts[key].add(text)
        self.state = attrs.evolve(self.state, texts={**self.state.texts, key: buffer})
        self.live.append(_delta(self.ids, key, clean_text(text)))

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
        if self.state.failed is not None:
            return
        if self.state.finish in (None, "unknown", "error"):
            said = "without a finish" if self.state.finish is None else f"with finish {self.state.finish!r}"
            self.stream_failed(failure("incomplete", f"the provider's stream ended {said}"))
            return
        self._end_all(truncated=False)
        self._fail_hosted("result-missing", "the provider gave no result for this call")
        self.emit(ev.StepStreamed(**self.ids))

    def stream_failed(self, failed: Failure) -> None:
        if self.state.failed is not None:
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
                self.emit(_tool_failed(self.ids, call_id, type, message, "unknown"))

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
        arguments, problem = parse_arguments(item.input)
        name = clean_text(item.name)
        called = ev.ToolCalled(
            **self.ids, call_id=item.call_id, name=name, input=arguments, hosted=item.hosted
        )
        self.emit(called)
        if problem is not None:
            outcome: ev.Outcome = "unknown" if item.hosted else "not_run"
            self.emit(_tool_failed(self.ids, item.call_id, "invalid-input", problem, outcome))
        elif not item.hosted:
            self._start_or_refuse(called)

    def _start_or_refuse(self, called: ev.ToolCalled) -> None:
        if not self.state.tools_allowed:
            text = "the step limit of this turn is reached: tools are switched off"
            self.emit(_tool_failed(self.ids, called.call_id, "tools-disabled", text, "not_run"))
        elif called.name not in self.state.tools:
            text = f"there is no tool named {called.name!r}"
            self.emit(_tool_failed(self.ids, called.call_id, "unknown-tool", text, "not_run"))
        else:
            self.start.append(called)

    def _result(self, item: ToolResult) -> None:
        call = self.state.facts.calls.get(item.call_id)
        if call is None or not call.hosted:
            raise ProviderFault(f"a result for {item.call_id!r}, which is no hosted call of this step")
        if call.settled:
            raise ProviderFault(f"a second result for call {item.call_id!r}")
        if item.error is not None:
            self.emit(_tool_failed(self.ids, item.call_id, "hosted-failed", clean_text(item.error), "failed"))
            return
        try:
            output = clean_json(item.output)
        except EventError as exc:
            raise ProviderFault(f"the result of call {item.call_id!r} can't be stored: {exc}") from exc
        facts = self.state.facts
        self.emit(
            ev.ToolSucceeded(
                session_id=facts.session_id,
                assistant_message_id=facts.message_id,
                call_id=item.call_id,
                output=output,
            )
        )

    def tool_done(self, item: ToolDone) -> None:
        self.emit(item.event)

    def progress(self, item: Progress) -> None:
        if item.call_id in self.state.facts.open_calls:
            self.live.append(ev.ToolProgress(**self.ids, call_id=item.call_id, value=item.value))


# --- event makers shared with settlement -------------------------------------------------------------


def fragment_ended(ids: dict[str, str], key: FragmentKey, text: Buffer, *, truncated: bool) -> ev.Event:
    """The boundary event that carries a fragment's whole text."""
    kind, which = key
    whole, cut = clean_text(text.text), truncated or text.truncated
    if kind == "tool.input":
        assert isinstance(which, str)
        return ev.ToolInputEnded(**ids, call_id=which, text=whole, truncated=cut)
    assert isinstance(which, int)
    cls = ev.TextEnded if kind == "text" else ev.ReasoningEnded
    return cls(**ids, ordinal=which, text=whole, truncated=cut)


def _started(ids: dict[str, str], key: FragmentKey, names: Mapping[str, str]) -> ev.Event:
    kind, which = key
    if isinstance(which, str):
        return ev.ToolInputStarted(**ids, call_id=which, name=clean_text(names[which]))
    return (
        ev.TextStarted(**ids, ordinal=which) if kind == "text" else ev.ReasoningStarted(**ids, ordinal=which)
    )


def _delta(ids: dict[str, str], key: FragmentKey, text: str) -> ev.Event:
    kind, which = key
    if isinstance(which, str):
        return ev.ToolInputDelta(**ids, call_id=which, text=text)
    cls = ev.TextDelta if kind == "text" else ev.ReasoningDelta
    return cls(**ids, ordinal=which, text=text)


def _tool_failed(
    ids: dict[str, str], call_id: str, type: str, message: str, outcome: ev.Outcome
) -> ev.ToolFailed:
    error = ErrorInfo(type=type, message=message)
    return ev.ToolFailed(**ids, call_id=call_id, error=error, outcome=outcome)


def parse_arguments(raw: str) -> tuple[dict[str, JSON], str | None]:
    """A call's arguments as a JSON object, and what was wrong with them.

    The raw text is never echoed to the model: a fixed wording names the kind of fault.
    """
    try:
        value = clean_json(decode_json(clean_text(raw) or "{}"))
    except EventError:
        return {}, "the arguments aren't valid JSON"
    if not isinstance(value, dict):
        return {}, "the arguments must be a JSON object"
    return value, None
