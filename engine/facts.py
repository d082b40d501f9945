"""The durable facts of one step, folded from its committed events.

One fold serves the publisher's memory, settlement after a crash, and the simulator's check that the two
never differ. It asserts its preconditions: a log that breaks them was not written by this engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from engine import events as ev

FragmentKey = tuple[str, int | str]
"""`("text", ordinal)`, `("reasoning", ordinal)` or `("tool.input", call_id)`."""


@attrs.frozen(kw_only=True)
class CallFact:
    """A durable tool call; `settled` once its terminal is committed."""

    name: str
    hosted: bool
    settled: bool


@attrs.frozen(kw_only=True)
class StepFacts:
    """What the log says of one step. Mappings keep the order in which things started."""

    session_id: str
    message_id: str
    fragments: Mapping[FragmentKey, bool] = attrs.field(factory=dict)  #: True while open
    calls: Mapping[str, CallFact] = attrs.field(factory=dict)
    streamed: bool = False
    terminal: str | None = None

    @property
    def open_fragments(self) -> tuple[FragmentKey, ...]:
        """Fragments that started and haven't ended."""
        return tuple(key for key, is_open in self.fragments.items() if is_open)

    @property
    def open_calls(self) -> tuple[str, ...]:
        """Ids of calls without a terminal."""
        return tuple(call_id for call_id, call in self.calls.items() if not call.settled)

    @property
    def visible(self) -> bool:
        """Whether the step produced something a reader of the log can see."""
        return bool(self.fragments or self.calls)


def apply(facts: StepFacts, event: ev.Event) -> StepFacts:
    """`facts` after one more durable event; events that aren't the step's leave them as they are."""
    if not isinstance(event, ev.StepEvent) or event.assistant_message_id != facts.message_id:
        return facts
    assert facts.terminal is None, f"{event.type} after {facts.terminal} in {facts.message_id}"
    match event:
        case ev.TextStarted():
            return _start(facts, ("text", event.ordinal))
        case ev.ReasoningStarted():
            return _start(facts, ("reasoning", event.ordinal))
        case ev.ToolInputStarted():
            return _start(facts, ("tool.input", event.call_id))
        case ev.TextEnded():
            return _end(facts, ("text", event.ordinal))
        case ev.ReasoningEnded():
            return _end(facts, ("reasoning", event.ordinal))
        case ev.ToolInputEnded():
            return _end(facts, ("tool.input", event.call_id))
        case ev.ToolCalled():
            assert event.call_id not in facts.calls, f"call {event.call_id} is made twice"
            call = CallFact(name=event.name, hosted=event.hosted, settled=False)
            return attrs.evolve(facts, calls={**facts.calls, event.call_id: call})
        case ev.ToolSucceeded() | ev.ToolFailed():
            assert event.call_id in facts.calls, f"{event.type} for call {event.call_id}, which wasn't made"
            call = facts.calls[event.call_id]
            assert not call.settled, f"call {event.call_id} is settled twice"
            return attrs.evolve(facts, calls={**facts.calls, event.call_id: attrs.evolve(call, settled=True)})
        case ev.StepStreamed():
            assert not facts.streamed, f"{event.type} twice in {facts.message_id}"
            return attrs.evolve(facts, streamed=True)
        case ev.StepEnded() | ev.StepFailed() | ev.StepInterrupted():
            assert not facts.open_fragments, f"{event.type} with open fragments"
            assert not facts.open_calls, f"{event.type} with open calls"
            return attrs.evolve(facts, terminal=event.type)
        case _:
            assert not isinstance(event, ev.StepStarted), f"step {facts.message_id} started twice"
            return facts


def _start(facts: StepFacts, key: FragmentKey) -> StepFacts:
    assert key not in facts.fragments, f"fragment {key} started twice"
    return attrs.evolve(facts, fragments={**facts.fragments, key: True})


def _end(facts: StepFacts, key: FragmentKey) -> StepFacts:
    assert facts.fragments.get(key), f"fragment {key} ended while it wasn't open"
    return attrs.evolve(facts, fragments={**facts.fragments, key: False})


def apply_all(facts: StepFacts, events: Iterable[ev.Event]) -> StepFacts:
    """`facts` after `events`, in order."""
    for event in events:
        facts = apply(facts, event)
    return facts


def fold(events: Iterable[ev.Event]) -> StepFacts | None:
    """The facts of the first step that starts in `events`; None if none does."""
    facts: StepFacts | None = None
    for event in events:
        if facts is not None:
            facts = apply(facts, event)
        elif isinstance(event, ev.StepStarted):
            facts = StepFacts(session_id=event.session_id, message_id=event.assistant_message_id)
    return facts
