"""A naive model of a step, written from the prose rules, and the inputs that tests feed to both."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import attrs
from hypothesis import strategies as st

from engine import events as ev
from engine import ports, step
from engine.facts import StepFacts
from engine.limits import EngineConfig
from engine.records import ErrorInfo

IDS: dict[str, Any] = {"session_id": "ses_1", "assistant_message_id": "msg_1"}
CONFIG = EngineConfig(fragment_bytes_max=24, tool_output_bytes_max=24, error_bytes_max=64, name_bytes_max=24)
STARTED = ev.StepStarted(**IDS, agent="a", model="m", attempt=1)

Item = step.StepInput


def fresh(*, tools_allowed: bool = True) -> step.StepState:
    """The state of a step that was just opened."""
    facts = StepFacts(session_id="ses_1", message_id="msg_1")
    return step.StepState(facts=facts, tools=frozenset({"read", "write"}), tools_allowed=tools_allowed)


def stored(text: str) -> str:
    """An id as the log holds it: what UTF-8 can't say is replaced."""
    return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


KINDS = {
    ports.TextStart: "text", ports.TextChunk: "text", ports.TextEnd: "text",
    ports.ReasoningStart: "reasoning", ports.ReasoningChunk: "reasoning", ports.ReasoningEnd: "reasoning",
    ports.ToolInputStart: "input", ports.ToolInputChunk: "input", ports.ToolInputEnd: "input",
}  # fmt: skip


class Model:
    """What the rules say of a sequence of inputs: which call runs, and how and when the step closes."""

    def __init__(self, *, tools_allowed: bool) -> None:
        self.tools_allowed = tools_allowed
        self.open: set[tuple[str, str]] = set()
        self.input_names: dict[str, str] = {}
        self.calls: dict[str, bool] = {}  # id: settled
        self.hosted: dict[str, int] = {}  # id: results that may still come
        self.running: list[str] = []
        self.finish: str | None = None
        self.failed: str | None = None
        self.streamed = False

    def feed(self, item: Item) -> None:
        """Take one input."""
        match item:
            case step.ToolDone():
                self.running.remove(item.event.call_id)
                self.calls[item.event.call_id] = True
            case step.Progress():
                pass
            case _ if self.failed or self.streamed:
                pass
            case step.StreamEnded():
                self._end()
            case step.StreamFailed(kind=kind) | ports.ProviderError(kind=kind):
                if self.finish is not None and kind == "transport":
                    self._end()
                else:
                    self._fail(kind)
            case _ if self.illegal(item):
                self._fail("provider_fault")
            case _:
                self._legal(item)

    def closing(self) -> str | None:
        """`ended`, the type of the error of a failed step, or None while it goes on."""
        if not all(self.calls.values()):
            return None
        if self.failed:
            return self.failed
        if not self.streamed:
            return None
        return "content_policy" if self.finish in ("content_filter", "refusal") else "ended"

    def _end(self) -> None:
        if self.finish in (None, "unknown", "error"):
            self._fail("incomplete")
            return
        self.streamed = True
        self._settle_hosted()

    def _fail(self, kind: str) -> None:
        self.failed = kind
        self._settle_hosted()

    def _settle_hosted(self) -> None:
        for call_id in self.hosted:
            self.calls[call_id] = True

    def illegal(self, item: Item) -> bool:
        """Whether a provider may not say this now."""
        if self.finish is not None:
            return True
        match item:
            case ports.ToolInputStart():
                return stored(item.call_id) in self.input_names or stored(item.call_id) in self.calls
            case ports.TextStart() | ports.ReasoningStart():
                return (KINDS[type(item)], item.id) in self.open
            case ports.TextChunk() | ports.TextEnd() | ports.ReasoningChunk() | ports.ReasoningEnd():
                return (KINDS[type(item)], item.id) not in self.open
            case ports.ToolInputChunk() | ports.ToolInputEnd():
                return ("input", stored(item.call_id)) not in self.open
            case ports.ToolCall():
                call_id = stored(item.call_id)
                return call_id in self.calls or self.input_names.get(call_id, item.name) != item.name
            case ports.ToolResult():
                return not self.hosted.get(stored(item.call_id))
        return not isinstance(item, ports.Finish)

    def _legal(self, item: Item) -> None:
        match item:
            case ports.ToolInputStart():
                self.input_names[stored(item.call_id)] = item.name
                self.open.add(("input", stored(item.call_id)))
            case ports.ToolInputEnd():
                self.open.discard(("input", stored(item.call_id)))
            case ports.TextStart() | ports.ReasoningStart():
                self.open.add((KINDS[type(item)], item.id))
            case ports.TextEnd() | ports.ReasoningEnd():
                self.open.discard((KINDS[type(item)], item.id))
            case ports.ToolCall():
                self._called(item)
            case ports.ToolResult():
                self.hosted[stored(item.call_id)] -= 1
                self.calls[stored(item.call_id)] = True
            case ports.Finish():
                self.finish = item.reason

    def _called(self, item: ports.ToolCall) -> None:
        call_id = stored(item.call_id)
        self.open.discard(("input", call_id))
        good = item.input in GOOD_INPUTS
        runs = not item.hosted and good and self.tools_allowed and item.name in ("read", "write")
        self.calls[call_id] = not (runs or (item.hosted and good))
        if item.hosted:
            self.hosted[call_id] = 1
        if runs:
            self.running.append(call_id)


# --- naive rules of a log ----------------------------------------------------------------------------


def complaints(events: Iterable[ev.Event], *, over: bool = False) -> list[str]:
    """What is wrong with the events of one step that follow its start; `over` if it must be whole."""
    wrong: list[str] = []
    started: list[object] = []
    ended: list[object] = []
    called: list[str] = []
    settled: list[str] = []
    closings = 0
    for event in events:
        if closings:
            wrong.append(f"{event.type} after the closing")
        key = getattr(event, "ordinal", None)
        match event:
            case ev.TextStarted() | ev.ReasoningStarted():
                if key != sum(isinstance(k, int) for k in started):
                    wrong.append(f"ordinal {key} isn't the next one")
                started.append(key)
            case ev.ToolInputStarted(call_id=call_id):
                started.append(call_id)
            case ev.TextEnded() | ev.ReasoningEnded():
                ended.append(key)
            case ev.ToolInputEnded(call_id=call_id):
                ended.append(call_id)
            case ev.ToolCalled(call_id=call_id):
                called.append(call_id)
            case ev.ToolSucceeded(call_id=call_id) | ev.ToolFailed(call_id=call_id):
                if call_id not in called:
                    wrong.append(f"{call_id} settled before it was called")
                settled.append(call_id)
            case ev.StepEnded() | ev.StepFailed() | ev.StepInterrupted():
                closings += 1
        wrong += [f"{k} ended but isn't open" for k in ended if k not in started]
    both: tuple[list[Any], ...] = (started, ended, called, settled)
    for many in both:
        wrong += [f"{one!r} twice" for one in dict.fromkeys(many) if many.count(one) > 1]
    if closings > 1 or (over and closings != 1):
        wrong.append(f"{closings} closings")
    if closings and (set(started) != set(ended) or set(called) != set(settled)):
        wrong.append("the closing leaves something open")
    return wrong


# --- inputs ------------------------------------------------------------------------------------------

GOOD_INPUTS = ("{}", '{"x": 1}', "")
BAD_INPUTS = ("oops", "[]", '{"x": 1}}', '{"n": ' + "9" * 30 + "}", '{"long": "' + "x" * 30 + '"}')

ids = st.sampled_from(["a", "b"])
call_ids = st.sampled_from(["c", "d", "\ud800", "\udbff", "\ufffd"])
names = st.sampled_from(["read", "write", "nobody"])
texts = st.sampled_from(["", "x", "hello", "\ud83d", "\ude00", "\n\n\n", "\x00" * 3, "é" * 5, "y" * 40])
reasons = st.sampled_from(["stop", "stop", "tool_calls", "length", "unknown", "error", "content_filter"])
kinds = st.sampled_from(["rate_limit", "transport", "auth", "incomplete", "quota", "surprise"])

provider_events: st.SearchStrategy[Item] = st.one_of(
    st.builds(ports.TextStart, id=ids),
    st.builds(ports.TextChunk, id=ids, text=texts),
    st.builds(ports.TextEnd, id=ids),
    st.builds(ports.ReasoningStart, id=ids),
    st.builds(ports.ReasoningChunk, id=ids, text=texts),
    st.builds(ports.ReasoningEnd, id=ids),
    st.builds(ports.ToolInputStart, call_id=call_ids, name=names),
    st.builds(ports.ToolInputChunk, call_id=call_ids, text=texts),
    st.builds(ports.ToolInputEnd, call_id=call_ids),
    st.builds(
        ports.ToolCall,
        call_id=call_ids,
        name=names,
        input=st.sampled_from(GOOD_INPUTS + BAD_INPUTS),
        hosted=st.booleans(),
    ),
    st.builds(ports.ToolResult, call_id=call_ids, output=texts, error=st.none() | texts),
    st.builds(ports.Finish, reason=reasons),
    st.builds(ports.ProviderError, kind=kinds, message=texts),
)
endings: st.SearchStrategy[Item] = st.one_of(
    st.just(step.StreamEnded()), st.builds(step.StreamFailed, kind=kinds, message=texts)
)


@attrs.frozen(kw_only=True)
class History:
    """A sequence of inputs in batches, as the owner of a step may receive them."""

    tools_allowed: bool
    batches: list[list[Item]]

    @property
    def items(self) -> list[Item]:
        """All inputs, one after another."""
        return [item for batch in self.batches for item in batch]


def outcome(draw: st.DrawFn, call_id: str) -> Item:
    """The outcome of a local tool that runs."""
    if draw(st.booleans()):
        return step.ToolDone(event=ev.ToolSucceeded(**IDS, call_id=call_id, output=draw(texts.map(stored))))
    error = ErrorInfo(type="t", message="m")
    return step.ToolDone(event=ev.ToolFailed(**IDS, call_id=call_id, error=error, outcome="failed"))


def _candidates() -> list[list[Item]]:
    """Every small input of each kind, for a choice among the legal ones."""
    two_ids, three_calls = ("a", "b"), ("c", "d", "\ud800")
    some = ("", "x", "hello", "\ud83d", "\ude00", "\n\n\n", "y" * 40)
    calls = itertools.product(three_calls, ("read", "nobody"), ("{}", "oops"), (False, True))
    return [
        [ports.TextStart(id=each) for each in two_ids],
        [ports.TextChunk(id=each, text=text) for each in two_ids for text in some],
        [ports.TextEnd(id=each) for each in two_ids],
        [ports.ReasoningStart(id=each) for each in two_ids],
        [ports.ReasoningChunk(id=each, text=text) for each in two_ids for text in some],
        [ports.ReasoningEnd(id=each) for each in two_ids],
        [ports.ToolInputStart(call_id=each, name=name) for each in three_calls for name in ("read", "write")],
        [ports.ToolInputChunk(call_id=each, text=text) for each in three_calls for text in some],
        [ports.ToolInputEnd(call_id=each) for each in three_calls],
        [ports.ToolCall(call_id=each, name="read", input="{}") for each in three_calls],
        [ports.ToolCall(call_id=each, name="find", input="{}", hosted=True) for each in three_calls],
        [ports.ToolCall(call_id=c, name=n, input=i, hosted=h) for c, n, i, h in calls],
        [ports.ToolResult(call_id=each, output=1) for each in three_calls],
        [ports.ToolResult(call_id=each, error="no") for each in three_calls],
    ]


CANDIDATES = _candidates()


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Any inputs in any batches: mostly legal ones, or few steps would live for long."""
    model = Model(tools_allowed=draw(st.sampled_from([True, True, False])))
    manners = draw(st.sampled_from(["polite", "polite", "slips once", "rude"]))
    items: list[Item] = []
    count = draw(st.integers(0, 24))
    slip = draw(st.integers(0, count)) if manners == "slips once" else None
    for number in range(count):
        item = _next(draw, model, rude=manners == "rude" or number == slip)
        model.feed(item)
        items.append(item)
    if manners == "polite":
        for item in (ports.Finish(reason=draw(reasons)), step.StreamEnded()):
            model.feed(item)
            items.append(item)
    items += [outcome(draw, call_id) for call_id in draw(st.permutations(model.running))]
    cuts = draw(st.lists(st.integers(0, len(items)), max_size=6).map(sorted))
    edges = [0, *cuts, len(items)]
    batches = [items[a:b] for a, b in itertools.pairwise(edges)]
    return History(tools_allowed=model.tools_allowed, batches=batches)


def _next(draw: st.DrawFn, model: Model, *, rude: bool) -> Item:
    if rude:
        return draw(provider_events | endings)
    legal = [good for kind in CANDIDATES if (good := [item for item in kind if not model.illegal(item)])]
    choices: list[st.SearchStrategy[Item]] = [st.sampled_from(good) for good in legal]
    choices += [st.builds(step.Progress, call_id=call_ids, value=st.just(1))]
    if model.running:
        choices.append(st.just(outcome(draw, draw(st.sampled_from(model.running)))))
    return draw(st.one_of(choices))
