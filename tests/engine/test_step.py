"""The step by named cases; any other order is for the machine test."""

from __future__ import annotations

import attrs
import pytest

from engine import events as ev
from engine import ports, step
from engine.limits import EngineConfig
from tests.engine.step_model import CONFIG, IDS, Item, fresh

FINISH = ports.Finish(reason="stop", input_tokens=3, output_tokens=4)
END = step.StreamEnded()
CALL = ports.ToolCall(call_id="c", name="read", input='{"x": 1}')
DONE = step.ToolDone(event=ev.ToolSucceeded(**IDS, call_id="c", output="ok"))


def decided(*items: Item, tools_allowed: bool = True, config: EngineConfig = CONFIG) -> step.Decision:
    """One decision for all items, from a fresh step."""
    return step.decide_all(fresh(tools_allowed=tools_allowed), items, config)


def types(decision: step.Decision) -> list[str]:
    """The durable event types of a decision."""
    return [event.type for event in decision.durable]


def fault(decision: step.Decision) -> str:
    """The message of a step that failed as a provider fault."""
    assert isinstance(decision.closing, step.Failed)
    assert decision.closing.failure.error.type == "provider_fault"
    assert not decision.closing.failure.error.retryable
    return decision.closing.failure.error.message


def test_a_plain_answer() -> None:
    """Text in pieces becomes one boundary event with the whole value, and the step ends with its usage."""
    text = [ports.TextStart(), ports.TextChunk(text="Hel"), ports.TextChunk(text="lo"), ports.TextEnd()]
    decision = decided(*text, FINISH, END)
    assert types(decision) == ["text.started", "text.ended", "step.streamed"]
    assert decision.durable[1] == ev.TextEnded(**IDS, ordinal=0, text="Hello")
    assert isinstance(decision.closing, step.Ended)
    assert decision.closing.usage.input_tokens == 3
    assert decision.closing.calls is False


def test_a_call_is_durable_before_its_tool_starts_and_the_step_waits_for_it() -> None:
    """The decision that starts a tool holds its `tool.called`; the step ends only after its terminal."""
    decision = decided(CALL, FINISH, END)
    assert types(decision) == ["tool.called", "step.streamed"]
    assert decision.start == (decision.durable[0],)
    assert decision.closing is None
    last = step.decide(decision.state, DONE, CONFIG)
    assert isinstance(last.closing, step.Ended)
    assert last.closing.calls


def test_fragments_are_numbered_in_the_order_of_their_start() -> None:
    """Text and reasoning share one count; the same provider id begins a new fragment after its end."""
    decision = decided(
        ports.TextStart(), ports.ReasoningStart(), ports.TextEnd(), ports.TextStart(), ports.ReasoningEnd()
    )
    started = [e.ordinal for e in decision.durable if isinstance(e, ev.TextStarted | ev.ReasoningStarted)]
    assert started == [0, 1, 2]


def test_a_call_ends_its_own_input() -> None:
    """A provider that sends the whole call without ending its streamed input is understood."""
    decision = decided(
        ports.ToolInputStart(call_id="c", name="read"), ports.ToolInputChunk(call_id="c", text="{"), CALL
    )
    assert types(decision) == ["tool.input.started", "tool.input.ended", "tool.called"]


@pytest.mark.parametrize(
    ("items", "why"),
    [
        ([ports.TextStart(), ports.TextStart()], "was started twice"),
        ([ports.TextChunk(text="x")], "isn't open"),
        ([ports.TextStart(), ports.TextEnd(), ports.TextChunk(text="x")], "isn't open"),
        ([ports.TextEnd()], "isn't open"),
        ([ports.TextStart(id="r"), ports.ReasoningChunk(id="r", text="x")], "isn't open"),
        ([ports.ToolInputStart(call_id="c", name="read")] * 2, "was started twice"),
        ([CALL, ports.ToolInputStart(call_id="c", name="read")], "was started twice"),
        ([CALL, CALL], "made twice"),
        ([ports.ToolInputStart(call_id="c", name="write"), CALL], "began as 'write' and became 'read'"),
        ([ports.ToolResult(call_id="c")], "no hosted call"),
        ([CALL, ports.ToolResult(call_id="c")], "no hosted call"),
        ([attrs.evolve(CALL, hosted=True), *[ports.ToolResult(call_id="c")] * 2], "a second result"),
        ([FINISH, FINISH], "Finish came after the finish"),
        ([FINISH, ports.TextStart()], "TextStart came after the finish"),
    ],
)  # fmt: skip
def test_an_illegal_order_is_a_provider_fault(items: list[Item], why: str) -> None:
    """The step fails with a clear error; what went before stands; calls that run are waited for."""
    decision = decided(*items)
    if decision.closing is None:
        assert decision.state.facts.open_calls == ("c",)
        decision = step.decide(decision.state, DONE, CONFIG)
    assert why in fault(decision)


def test_a_stream_without_finish_is_no_success() -> None:
    """A body that ends early fails the step, retryable, with the partial text kept and marked."""
    decision = decided(ports.TextStart(), ports.TextChunk(text="half"), END)
    assert decision.durable[-1] == ev.TextEnded(**IDS, ordinal=0, text="half", truncated=True)
    assert isinstance(decision.closing, step.Failed)
    assert (decision.closing.failure.error.type, decision.closing.visible) == ("incomplete", True)
    assert decision.closing.failure.error.retryable


def test_nothing_visible_is_said_to_be_invisible() -> None:
    """A failure before any fragment or call may be retried as if nothing had happened."""
    decision = decided(ports.ProviderError(kind="rate_limit", message="slow", retry_after_s=2.5))
    assert isinstance(decision.closing, step.Failed)
    assert (decision.closing.visible, decision.closing.failure.retry_after_ms) == (False, 2500)


def test_a_connection_that_breaks_after_the_finish_costs_nothing() -> None:
    """The answer was whole: only closing failed. Any other error after the finish counts."""
    assert isinstance(
        decided(FINISH, step.StreamFailed(kind="transport", message="reset")).closing, step.Ended
    )
    assert isinstance(decided(FINISH, ports.ProviderError(kind="internal")).closing, step.Failed)


@pytest.mark.parametrize(
    "late",
    [
        END,
        step.StreamFailed(kind="transport", message="x"),
        ports.ProviderError(kind="auth"),
        ports.TextStart(),
    ],
)
def test_nothing_counts_after_the_body_was_complete(late: Item) -> None:
    """Once `step.streamed` is decided, a second ending or a straggling event changes nothing."""
    waiting = decided(CALL, FINISH, END).state
    decision = step.decide(waiting, late, CONFIG)
    assert decision.durable == ()
    assert decision.state == waiting


def test_a_tool_that_runs_while_the_stream_fails_is_waited_for() -> None:
    """The failure surfaces after the tool's result is in; its usage, if known, too."""
    decision = decided(CALL, ports.ProviderError(kind="internal", message="boom"))
    assert decision.closing is None
    assert decision.start != ()
    last = step.decide(decision.state, DONE, CONFIG)
    assert isinstance(last.closing, step.Failed)
    assert last.closing.visible


@pytest.mark.parametrize(("ending", "type"), [([FINISH, END], "result-missing"), ([END], "provider-failed")])
def test_a_hosted_call_without_result_is_failed(ending: list[Item], type: str) -> None:
    """A clean finish fails the call alone, a broken stream fails the step, too."""
    decision = decided(attrs.evolve(CALL, hosted=True), *ending)
    failed = next(e for e in decision.durable if isinstance(e, ev.ToolFailed))
    assert (failed.error.type, failed.outcome) == (type, "unknown")
    assert isinstance(decision.closing, step.Ended if type == "result-missing" else step.Failed)


def test_malformed_arguments_fail_that_call_alone() -> None:
    """The bad call never starts, the model is told without an echo, and its sibling runs."""
    bad = ports.ToolCall(call_id="bad", name="read", input="oops")
    decision = decided(bad, CALL, FINISH, END, DONE)
    failed = next(e for e in decision.durable if isinstance(e, ev.ToolFailed))
    assert (failed.call_id, failed.error.type, failed.outcome) == ("bad", "invalid-input", "not_run")
    assert "oops" not in failed.error.message
    assert [call.call_id for call in decision.start] == ["c"]
    assert isinstance(decision.closing, step.Ended)


def test_a_hosted_call_with_malformed_arguments_may_still_get_its_result() -> None:
    """The provider ran it: its outcome is unknown here, one result is dropped, a second is a fault."""
    bad = ports.ToolCall(call_id="h", name="search", input="oops", hosted=True)
    result = ports.ToolResult(call_id="h", output=1)
    decision = decided(bad, result, FINISH, END)
    assert types(decision) == ["tool.called", "tool.failed", "step.streamed"]
    assert isinstance(decision.closing, step.Ended)
    assert "a second result" in fault(decided(bad, result, result))


def test_tools_that_are_switched_off_or_unknown_are_refused() -> None:
    """On the last step of a turn, and for a name nobody knows, the call fails unexecuted."""
    off = decided(CALL, tools_allowed=False)
    unknown = decided(attrs.evolve(CALL, name="nobody"))
    for decision, type in ((off, "tools-disabled"), (unknown, "unknown-tool")):
        failed = decision.durable[-1]
        assert isinstance(failed, ev.ToolFailed)
        assert (failed.error.type, failed.outcome) == (type, "not_run")
        assert decision.start == ()


@pytest.mark.parametrize("reason", ["content_filter", "refusal"])
def test_an_answer_the_provider_stopped_is_a_visible_failure_with_usage(reason: str) -> None:
    """It isn't retried, and what it cost is kept."""
    decision = decided(attrs.evolve(FINISH, reason=reason), END)
    assert isinstance(decision.closing, step.Failed)
    assert decision.closing.visible
    assert not decision.closing.failure.error.retryable
    assert decision.closing.usage is not None
    assert decision.closing.usage.output_tokens == 4


def test_a_surrogate_pair_in_two_deltas_is_joined_live_and_in_the_log() -> None:
    """The first half waits for the second, so a listener never sees two replacement characters."""
    decision = decided(ports.TextStart(), ports.TextChunk(text="a\ud83d"), ports.TextChunk(text="\ude00b"))
    assert [e.text for e in decision.live if isinstance(e, ev.TextDelta)] == ["a", "\U0001f600b"]


def test_live_text_stops_where_the_log_stops() -> None:
    """Past the bound of a fragment nothing more is broadcast, and its end is marked."""
    chunks = [ports.TextChunk(text="y" * 20)] * 50
    decision = decided(ports.TextStart(), *chunks)
    assert sum(len(e.text) for e in decision.live if isinstance(e, ev.TextDelta)) == 24
    ended = step.decide(decision.state, ports.TextEnd(), CONFIG).durable[0]
    assert ended == ev.TextEnded(**IDS, ordinal=0, text="y" * 24, truncated=True)


def test_progress_is_shown_only_while_its_call_is_open() -> None:
    """A running tool's progress is live; a settled or unknown call's is dropped."""
    shown = step.Progress(call_id="c", value=1)
    assert [e.type for e in decided(CALL, shown).live] == ["tool.progress"]
    assert decided(shown).live == ()
    assert decided(CALL, DONE, shown).live == ()


def test_an_outcome_of_no_open_call_is_a_bug() -> None:
    """Only this process makes outcomes: one for a call that isn't open breaks a promise inside the engine."""
    with pytest.raises(AssertionError, match="wasn't made"):
        decided(DONE)


def test_inputs_after_the_closing_are_dropped() -> None:
    """A batch may hold more than the step needed."""
    decision = decided(FINISH, END, ports.TextStart(), END)
    assert types(decision) == ["step.streamed"]
    assert isinstance(decision.closing, step.Ended)


def test_a_step_that_has_its_terminal_closes_no_second_time() -> None:
    """Once the terminal is part of the facts there is nothing to close."""
    over = decided(FINISH, END).state
    closed = attrs.evolve(over, facts=attrs.evolve(over.facts, terminal="step.ended"))
    assert step.decide_all(closed, [], CONFIG).closing is None
