"""The step against a naive model: any provider events, tool outcomes and stream endings, in any batches."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import codec, drain, facts, ports, settlement, step
from engine import events as ev
from engine.records import SessionRow
from engine.turn import Turn
from tests.engine.step_model import (
    CONFIG,
    IDS,
    STARTED,
    History,
    Model,
    complaints,
    fresh,
    histories,
    provider_events,
    texts,
)

SESSION = SessionRow(
    session_id="ses_1",
    title="",
    location=None,
    model="m",
    agent="a",
    system="",
    created=0,
    status="running",
    deleted=False,
)


def described(closing: step.Closing | None) -> str | None:
    """A closing in the model's words."""
    if closing is None:
        return None
    return "ended" if isinstance(closing, step.Ended) else closing.failure.error.type


def terminal(closing: step.Closing) -> list[ev.Event]:
    """The terminal event of a step that closes so."""
    view = drain.View(
        session=SESSION,
        turn=Turn(),
        closing=closing,
        closing_id="msg_1",
        steers=(),
        queued=None,
        latest_seq=0,
        now_ms=0,
        fraction=0.0,
    )
    return drain.terminal(view)


def comparable(state: step.StepState) -> dict[str, Any]:
    """A state as plain values: buffers by what they hold."""
    plain = attrs.asdict(state, recurse=False)
    plain["texts"] = {k: (b.text, b.half, b.bytes, b.truncated) for k, b in state.texts.items()}
    return plain


@settings(max_examples=200)
@given(histories())
def test_every_prefix_is_well_formed_and_closes_as_the_rules_say(history: History) -> None:
    """After each input the log is well formed, memory is its fold, and the step closes with the model."""
    state, model = fresh(tools_allowed=history.tools_allowed), Model(tools_allowed=history.tools_allowed)
    events: list[ev.Event] = []
    running: list[str] = []
    for item in history.items:
        decision = step.decide(state, item, CONFIG)
        state = decision.state
        events += decision.durable
        model.feed(item)
        running += [call.call_id for call in decision.start]
        if isinstance(item, step.ToolDone):
            running.remove(item.event.call_id)
        assert complaints(events) == []
        assert facts.fold([STARTED, *events]) == state.facts
        assert running == model.running
        assert described(decision.closing) == model.closing()
        if decision.closing is not None:
            assert complaints([*events, *terminal(decision.closing)], over=True) == []
            return


@settings(max_examples=150)
@given(histories())
def test_batching_changes_neither_the_log_nor_the_outcome(history: History) -> None:
    """One decision per input and one per batch write the same events, start the same tools, close alike."""
    single = batched = fresh(tools_allowed=history.tools_allowed)
    single_events: list[ev.Event] = []
    batched_events: list[ev.Event] = []
    single_starts: list[ev.ToolCalled] = []
    batched_starts: list[ev.ToolCalled] = []
    for batch in history.batches:
        decision = step.decide_all(batched, batch, CONFIG)
        batched = decision.state
        batched_events += decision.durable
        batched_starts += decision.start
        closing = None
        for item in batch:
            one = step.decide(single, item, CONFIG)
            single, closing = one.state, one.closing
            single_events += one.durable
            single_starts += one.start
            if closing is not None:
                break
        assert batched_events == single_events
        assert batched_starts == single_starts
        assert comparable(batched) == comparable(single)
        assert decision.closing == closing
        if closing is not None:
            return


@settings(max_examples=150)
@given(histories())
def test_what_is_broadcast_is_well_formed(history: History) -> None:
    """Durable events first, then live ones: no delta reaches a listener for a fragment that isn't open."""
    state = fresh(tools_allowed=history.tools_allowed)
    opened: dict[object, str] = {}
    calls: set[str] = set()
    for batch in history.batches:
        decision = step.decide_all(state, batch, CONFIG)
        state = decision.state
        for event in decision.durable:
            match event:
                case ev.TextStarted() | ev.ReasoningStarted():
                    opened[event.ordinal] = ""
                case ev.ToolInputStarted():
                    opened[event.call_id] = ""
                case ev.TextEnded() | ev.ReasoningEnded():
                    assert event.text.startswith(opened.pop(event.ordinal))
                case ev.ToolInputEnded():
                    assert event.text.startswith(opened.pop(event.call_id))
                case ev.ToolCalled():
                    calls.add(event.call_id)
                case ev.ToolSucceeded() | ev.ToolFailed():
                    calls.remove(event.call_id)
        for event in decision.live:
            match event:
                case ev.TextDelta() | ev.ReasoningDelta():
                    opened[event.ordinal] += event.text
                case ev.ToolInputDelta():
                    opened[event.call_id] += event.text
                case ev.ToolProgress():
                    assert event.call_id in calls
        if decision.closing is not None:
            assert decision.live == ()
            return


@settings(max_examples=150)
@given(histories(), st.lists(provider_events, max_size=4))
def test_a_decision_that_was_dropped_leaves_no_trace(
    history: History, detour: list[ports.ProviderEvent]
) -> None:
    """A commit that failed drops its decision; deciding again from the old state gives the same."""
    state = fresh(tools_allowed=history.tools_allowed)
    for batch in history.batches:
        before = comparable(state)
        first = step.decide_all(state, batch, CONFIG)
        seen = comparable(first.state)
        step.decide_all(state, detour, CONFIG)
        step.decide_all(first.state, detour, CONFIG)
        assert comparable(state) == before
        assert comparable(first.state) == seen
        again = step.decide_all(state, batch, CONFIG)
        assert again.durable == first.durable
        assert again.live == first.live
        assert again.closing == first.closing
        assert comparable(again.state) == seen
        state = again.state
        if again.closing is not None:
            return


@settings(max_examples=150)
@given(histories(), st.sampled_from(["user", "shutdown", "unknown"]), st.booleans())
def test_settlement_makes_every_reachable_state_whole_and_only_once(
    history: History, cause: ev.Cause, holding: bool
) -> None:
    """From any state, with or without what memory holds: a whole log, and nothing the second time."""
    state = fresh(tools_allowed=history.tools_allowed)
    events: list[ev.Event] = []
    for item in history.items:
        held = settlement.Held(texts=state.texts) if holding else settlement.NOTHING_HELD
        closing = settlement.close(state.facts, held, cause)
        assert complaints([*events, *closing], over=True) == []
        ended: dict[Any, Any] = {
            (type(e), e.ordinal): e for e in closing if isinstance(e, ev.TextEnded | ev.ReasoningEnded)
        }
        for key, buffer in state.texts.items():
            cls = {"text": ev.TextEnded, "reasoning": ev.ReasoningEnded}.get(key[0])
            if cls is not None:
                assert ended[cls, key[1]].text == (buffer.ended().text if holding else "")
                assert ended[cls, key[1]].truncated
        whole = facts.fold([STARTED, *events, *closing])
        assert whole is not None
        assert whole.terminal == "step.interrupted"
        assert settlement.close(whole, held, cause) == []
        decision = step.decide(state, item, CONFIG)
        state = decision.state
        events += decision.durable
        if decision.closing is not None:
            return


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    texts,
    st.sampled_from(["z" * 500, b"bytes", [], {"k": 1}, {1: 2}, [["deep"] * 3], object()]),
)


@st.composite
def strange_events(draw: st.DrawFn) -> ports.ProviderEvent:
    """A provider's event with any value in any field, as an adapter with a fault may send."""
    item: Any = draw(provider_events)
    strange = {field.name: draw(anything) for field in attrs.fields(type(item)) if draw(st.booleans())}
    made: ports.ProviderEvent = attrs.evolve(item, **strange)
    return made


@settings(max_examples=250)
@given(st.lists(st.one_of(strange_events(), provider_events), max_size=12))
def test_nothing_a_provider_says_can_poison_the_log(items: list[ports.ProviderEvent]) -> None:
    """Whatever comes, `decide` raises nothing, and each event is stored in its bound and read as it was."""
    state = fresh()
    for item in items:
        decision = step.decide(state, item, CONFIG)
        state = decision.state
        closing = [] if decision.closing is None else terminal(decision.closing)
        for event in [*decision.durable, *closing, *settlement.close(state.facts, held_by(state), "user")]:
            data = codec.encode_event(event, bytes_max=CONFIG.fragment_bytes_max + 500)
            assert codec.decode_event(event.type, event.version, data) == event
        if decision.closing is not None:
            return


def held_by(state: step.StepState) -> settlement.Held:
    """What a process holds of a step whose tools haven't answered."""
    return settlement.Held(texts=state.texts, not_run=frozenset(state.facts.open_calls))


def test_a_thing_that_is_no_event_fails_the_step() -> None:
    """An iterator of a provider that yields something else is a provider fault, not a crash."""
    thing: Any = "data: hello"
    decision = step.decide(fresh(), thing, CONFIG)
    assert described(decision.closing) == "provider_fault"
    assert decision.state.facts.session_id == IDS["session_id"]
