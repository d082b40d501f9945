"""I4, I5, I6 and I13: steps, and what happens inside them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import attrs

from engine import events as ev
from engine.events import Stored
from engine.verify.records import Breach, SessionRecord

TERMINALS = (ev.StepEnded, ev.StepFailed, ev.StepInterrupted)

FRAGMENTS = (
    ("text", ev.TextStarted, ev.TextEnded),
    ("reasoning", ev.ReasoningStarted, ev.ReasoningEnded),
    ("tool input", ev.ToolInputStarted, ev.ToolInputEnded),
)

VISIBLE = (ev.TextStarted, ev.ReasoningStarted, ev.ToolInputStarted, ev.ToolCalled)
"""What a reader of the log sees of a step before it ends."""


def by_step(record: SessionRecord) -> dict[str, list[Stored]]:
    """The events of each step by its message id, in order."""
    steps: dict[str, list[Stored]] = {}
    for item in record.stored:
        if isinstance(item.event, ev.StepEvent):
            steps.setdefault(item.event.assistant_message_id, []).append(item)
    return steps


def only(items: Sequence[Stored], *classes: type[ev.Event]) -> list[Stored]:
    """The items whose events are of these classes."""
    return [item for item in items if isinstance(item.event, classes)]


def open_step(record: SessionRecord) -> str | None:
    """The message id of the latest step, if the log shows no terminal of it."""
    started = record.of(ev.StepStarted)
    if not started:
        return None
    event = started[-1].event
    assert isinstance(event, ev.StepStarted)
    message_id = event.assistant_message_id
    return None if only(by_step(record)[message_id], *TERMINALS) else message_id


# --- I4 ----------------------------------------------------------------------------------------------


def i4(record: SessionRecord) -> Iterator[Breach]:
    """Each `step.started` has at most one terminal and nothing after it; exactly one once the session has
    no claim."""
    for message_id, items in by_step(record).items():
        yield from _step_starts_first(record, message_id, items)
        yield from _step_ends_once(record, message_id, items)


def _step_starts_first(record: SessionRecord, message_id: str, items: list[Stored]) -> Iterator[Breach]:
    starts = only(items, ev.StepStarted)
    first = items[0]
    if first not in starts[:1] and not record.hides(before=first.seq):
        sentence = f"step {message_id} has {first.type} at seq {first.seq}, and had not started"
        yield record.breach("I4", first.seq, sentence)
    for again in starts[1:]:
        sentence = f"step {message_id} starts twice: at seq {starts[0].seq} and at seq {again.seq}"
        yield record.breach("I4", again.seq, sentence)


def _step_ends_once(record: SessionRecord, message_id: str, items: list[Stored]) -> Iterator[Breach]:
    ends = only(items, *TERMINALS)
    if not ends:
        if record.unattended and not record.hides(after=items[0].seq):
            sentence = f"step {message_id} has no terminal, and nobody holds the session's claim"
            yield record.breach("I4", items[0].seq, sentence)
        return
    first = ends[0]
    for item in items:
        if item.seq <= first.seq:
            continue
        if item in ends:
            said = f"has two terminals: {first.type} at seq {first.seq} and {item.type} at seq {item.seq}"
        else:
            said = (
                f"goes on after its terminal: {first.type} at seq {first.seq}, {item.type} at seq {item.seq}"
            )
        yield record.breach("I4", item.seq, f"step {message_id} {said}")


# --- I5 and I6: what opens and closes inside a step --------------------------------------------------


@attrs.frozen(kw_only=True)
class _Pair:
    """Something of a step that opens once and closes once, by name; and the step's first terminal."""

    name: str
    opens: list[Stored]
    closes: list[Stored]
    terminal: Stored | None


def i5(record: SessionRecord) -> Iterator[Breach]:
    """Each fragment that started ends once, before its step's terminal; none ends that didn't start."""
    for message_id, items in by_step(record).items():
        for kind, started, ended in FRAGMENTS:
            for pair in _pairs(items, kind, message_id, (started,), (ended,)):
                yield from _closed_once(record, "I5", pair)


def i6(record: SessionRecord) -> Iterator[Breach]:
    """Each tool call has one terminal, before its step's terminal."""
    for message_id, items in by_step(record).items():
        closers = (ev.ToolSucceeded, ev.ToolFailed)
        for pair in _pairs(items, "call", message_id, (ev.ToolCalled,), closers):
            yield from _closed_once(record, "I6", pair)


def _pairs(
    items: list[Stored],
    kind: str,
    message_id: str,
    openers: tuple[type[ev.Event], ...],
    closers: tuple[type[ev.Event], ...],
) -> Iterator[_Pair]:
    ends = only(items, *TERMINALS)
    found: dict[str | int, list[Stored]] = {}
    for item in only(items, *openers, *closers):
        found.setdefault(_number(item.event), []).append(item)
    for number, both in found.items():
        yield _Pair(
            name=f"{kind} {number} of step {message_id}",
            opens=only(both, *openers),
            closes=only(both, *closers),
            terminal=ends[0] if ends else None,
        )


def _number(event: ev.Event) -> str | int:
    """What tells apart the fragments and calls of one kind in one step."""
    if isinstance(event, ev.TextStarted | ev.TextEnded | ev.ReasoningStarted | ev.ReasoningEnded):
        return event.ordinal
    assert isinstance(
        event, ev.ToolInputStarted | ev.ToolInputEnded | ev.ToolCalled | ev.ToolSucceeded | ev.ToolFailed
    )
    return event.call_id


def _closed_once(record: SessionRecord, invariant: str, pair: _Pair) -> Iterator[Breach]:
    for again in pair.opens[1:]:
        sentence = f"{pair.name} begins twice: at seq {pair.opens[0].seq} and at seq {again.seq}"
        yield record.breach(invariant, again.seq, sentence)
    for again in pair.closes[1:]:
        first = pair.closes[0]
        sentence = (
            f"{pair.name} has two ends: {first.type} at seq {first.seq} and {again.type} at seq {again.seq}"
        )
        yield record.breach(invariant, again.seq, sentence)
    if pair.closes:
        yield from _began_before(record, invariant, pair, pair.closes[0])
    if pair.opens and pair.terminal is not None:
        yield from _ended_before_terminal(record, invariant, pair, pair.terminal)


def _began_before(record: SessionRecord, invariant: str, pair: _Pair, closed: Stored) -> Iterator[Breach]:
    if (pair.opens and pair.opens[0].seq < closed.seq) or record.hides(before=closed.seq):
        return
    yield record.breach(invariant, closed.seq, f"{pair.name} has {closed.type}, and had not begun")


def _ended_before_terminal(
    record: SessionRecord, invariant: str, pair: _Pair, terminal: Stored
) -> Iterator[Breach]:
    opened = pair.opens[0]
    if any(item.seq < terminal.seq for item in pair.closes):
        return
    if opened.seq > terminal.seq or record.hides(after=opened.seq, before=terminal.seq):
        return
    sentence = f"{pair.name} began at seq {opened.seq} and is open when its step closes with {terminal.type}"
    yield record.breach(invariant, terminal.seq, sentence)


# --- I13 ---------------------------------------------------------------------------------------------


def i13(record: SessionRecord) -> Iterator[Breach]:
    """Between two requests of a turn stands the terminal of the first; no `retry.scheduled` for a step that
    produced something visible, nor for one that didn't fail."""
    steps = by_step(record)
    for first, second in itertools.pairwise(record.of(ev.StepStarted)):
        event = first.event
        assert isinstance(event, ev.StepStarted)
        between = [
            item
            for item in only(steps[event.assistant_message_id], *TERMINALS)
            if first.seq < item.seq < second.seq
        ]
        if not between and not record.hides(after=first.seq, before=second.seq):
            sentence = (
                f"a step starts at seq {second.seq}, and step {event.assistant_message_id}"
                f" of seq {first.seq} has no terminal before it"
            )
            yield record.breach("I13", second.seq, sentence)
    yield from _retries_follow_failures(record, steps)


def _retries_follow_failures(record: SessionRecord, steps: dict[str, list[Stored]]) -> Iterator[Breach]:
    step: Stored | None = None
    earlier: Stored | None = None  # the retry of this step that was scheduled already
    for item in record.of(ev.StepStarted, ev.RetryScheduled):
        if isinstance(item.event, ev.StepStarted):
            step, earlier = item, None
            continue
        since = -1 if step is None else step.seq
        if not record.hides(after=since, before=item.seq):
            yield from _retry_of(record, steps, step, item)
        if earlier is not None:
            sentence = f"two retries of one step are scheduled: at seq {earlier.seq} and at seq {item.seq}"
            yield record.breach("I13", item.seq, sentence)
        earlier = item


def _retry_of(
    record: SessionRecord, steps: dict[str, list[Stored]], step: Stored | None, retry: Stored
) -> Iterator[Breach]:
    if step is None:
        yield record.breach("I13", retry.seq, "a retry is scheduled, and no step has started")
        return
    assert isinstance(step.event, ev.StepStarted)
    message_id = step.event.assistant_message_id
    before = [item for item in steps[message_id] if item.seq < retry.seq]
    for seen in only(before, *VISIBLE)[:1]:
        sentence = (
            f"a retry is scheduled for step {message_id}, which had shown {seen.type} at seq {seen.seq}"
        )
        yield record.breach("I13", retry.seq, sentence)
    if not only(before, ev.StepFailed):
        sentence = f"a retry is scheduled for step {message_id}, which had not failed"
        yield record.breach("I13", retry.seq, sentence)
