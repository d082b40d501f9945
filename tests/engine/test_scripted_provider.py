"""The provider that plays scripts."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from engine import ports
from engine.providers.script import (
    Cut,
    Finish,
    OnClose,
    Reply,
    SlowClose,
    Stall,
    Text,
    Unreachable,
    reply,
    says,
)
from engine.providers.scripted import InTurn, ScriptedFailure, ScriptedProvider
from engine.records import Request
from engine.system import RealClock


class WatchedClock(RealClock):
    """The real clock, which notes who waited in which task for how long."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.passed = 0
        self.tasks: list[str] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.tasks.append(trio.lowlevel.current_task().name)
        await super().sleep(seconds)

    async def checkpoint(self) -> None:
        self.passed += 1
        await super().checkpoint()


def ask(session: str = "s", attempt: int = 1) -> Request:
    return Request(
        session_id=session,
        message_id="msg_1",
        execution_id="exe_1",
        model="scripted",
        agent="main",
        system="",
        location=None,
        attempt=attempt,
        messages=(),
        tools=(),
    )


async def heard(provider: ScriptedProvider, request: Request) -> list[ports.ProviderEvent]:
    async with provider.open(request) as events:
        return [event async for event in events]


async def cancelled_inside(provider: ScriptedProvider, scope: trio.CancelScope) -> None:
    """Open a request, then cancel `scope` and wait in the block."""
    async with provider.open(ask()):
        scope.cancel()
        await trio.sleep_forever()


async def gather(events: AsyncIterator[ports.ProviderEvent], into: list[ports.ProviderEvent]) -> None:
    async for event in events:
        into.append(event)


async def text_of(provider: ScriptedProvider, request: Request) -> str:
    return "".join(e.text for e in await heard(provider, request) if isinstance(e, ports.TextChunk))


def provider_of(*lines: Any) -> ScriptedProvider:
    return ScriptedProvider(RealClock(), [Reply(lines=lines)])


@pytest.mark.trio
async def test_it_plays_a_script_to_its_end() -> None:
    """The events come in order, and the iterator ends when the body is complete."""
    assert await heard(provider_of(Text(text="hi"), Finish()), ask()) == [
        ports.TextStart(),
        ports.TextChunk(text="hi"),
        ports.TextEnd(),
        ports.Finish(),
    ]
    assert await heard(provider_of(), ask()) == []


@pytest.mark.trio
async def test_without_a_script_it_answers_plainly() -> None:
    """As the embedded default it needs no script: it says something and finishes."""
    said = await heard(ScriptedProvider(RealClock()), ask())
    assert said[-1] == ports.Finish(reason="stop")


@pytest.mark.trio
async def test_each_request_of_a_session_takes_the_next_reply() -> None:
    """Requests are counted per session, a retry too, and the last reply is repeated."""
    provider = ScriptedProvider(RealClock(), [says("1"), says("2")])
    assert [await text_of(provider, ask()) for _ in range(3)] == ["1", "2", "2"]
    assert await text_of(provider, ask("other", attempt=2)) == "1"


@pytest.mark.trio
async def test_opening_twice_at_once_takes_two_replies() -> None:
    """A request counts when its block is entered, not when it was asked for or ends."""
    provider = ScriptedProvider(RealClock(), [says("1"), says("2")])
    provider.open(ask())
    async with provider.open(ask()) as first, provider.open(ask()) as second:
        assert isinstance(await anext(first), ports.TextStart)
        await anext(second)
        assert await anext(first) == ports.TextChunk(text="1")
        assert await anext(second) == ports.TextChunk(text="2")


@pytest.mark.trio
async def test_a_shared_count_goes_on_in_another_provider() -> None:
    """Two nodes that share one `InTurn` take the replies of a session in one order."""
    turns = InTurn([says("x")], by_session={"s": [says("1"), says("2")]})
    nodes = [ScriptedProvider(RealClock(), choose=turns) for _ in range(2)]
    assert [await text_of(node, ask()) for node in nodes] == ["1", "2"]
    assert await text_of(nodes[0], ask("other")) == "x"
    assert (turns.requests("s"), turns.requests("other"), turns.requests("none")) == (2, 1, 0)


def test_a_session_without_replies_is_refused() -> None:
    """An empty list of replies is told at once, not at the first request."""
    with pytest.raises(ValueError, match="at least one reply"):
        InTurn([])
    with pytest.raises(ValueError, match="at least one reply"):
        InTurn([says("x")], by_session={"s": []})


@pytest.mark.trio
async def test_the_reply_may_be_chosen_by_request() -> None:
    """`choose` sees the request and says what it is answered."""
    provider = ScriptedProvider(RealClock(), choose=lambda request: says(f"hello {request.session_id}"))
    assert await text_of(provider, ask("z")) == "hello z"


@pytest.mark.trio
async def test_delays_wait_on_the_injected_clock_in_the_openers_task(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Every wait is a sleep of the clock given, as long as the script says, in the task that reads."""
    clock = WatchedClock()
    provider = ScriptedProvider(
        clock, [reply(Text(text="ab", chunks=2, every_ms=250), Stall(stall_ms=3_000))]
    )
    began = trio.current_time()
    await heard(provider, ask())
    assert clock.slept == [0.25, 0.25, 3.0]
    assert trio.current_time() - began == pytest.approx(3.5)
    assert set(clock.tasks) == {trio.lowlevel.current_task().name}


@pytest.mark.trio
async def test_every_call_is_a_checkpoint() -> None:
    """Opening and each event let others run and notice a cancellation, also without any delay."""
    clock = WatchedClock()
    provider = ScriptedProvider(clock, [reply(Finish(), Finish())])
    with trio.testing.assert_checkpoints():
        opened = provider.open(ask())
        events = await opened.__aenter__()
    for _ in range(2):
        with trio.testing.assert_checkpoints():
            await anext(events)
    with trio.testing.assert_checkpoints(), pytest.raises(StopAsyncIteration):
        await anext(events)
    await opened.__aexit__(None, None, None)
    assert clock.passed == 4


@pytest.mark.trio
async def test_a_cancelled_read_loses_no_event() -> None:
    """A reader that gave up on one event and reads again gets it."""
    async with provider_of(Text(text="a")).open(ask()) as events:
        with trio.CancelScope() as scope:
            scope.cancel()
            await anext(events)
        assert scope.cancelled_caught
        assert await anext(events) == ports.TextStart()


@pytest.mark.trio
async def test_a_stall_is_ended_by_cancellation(autojump_clock: trio.testing.MockClock) -> None:
    """Cancelling the block cancels the request, whatever the script still had in mind."""
    with trio.move_on_after(5) as scope:
        await heard(provider_of(Stall(stall_ms=3_600_000)), ask())
    assert scope.cancelled_caught
    assert trio.current_time() < 10


@pytest.mark.trio
async def test_a_cut_raises_out_of_the_stream() -> None:
    """What came before the cut is heard; after it the stream has nothing more."""
    async with provider_of(Text(text="a"), Cut(cut="reset")).open(ask()) as events:
        said: list[ports.ProviderEvent] = []
        with pytest.raises(ScriptedFailure, match="reset"):
            await gather(events, into=said)
        assert len(said) == 3
        with pytest.raises(StopAsyncIteration):
            await anext(events)


@pytest.mark.trio
async def test_an_unreachable_request_fails_to_open(autojump_clock: trio.testing.MockClock) -> None:
    """Opening raises after its delay, the block is never entered, and it still counts as a request."""
    turns = InTurn([reply(Unreachable(unreachable="no route", delay_ms=2_000)), says("ok")])
    provider = ScriptedProvider(RealClock(), choose=turns)
    began = trio.current_time()
    with pytest.raises(ScriptedFailure, match="no route"):
        async with provider.open(ask()):
            pytest.fail("the block was entered")
    assert trio.current_time() - began == pytest.approx(2)
    assert await text_of(provider, ask()) == "ok"


@pytest.mark.trio
async def test_closing_may_raise() -> None:
    """With nothing else under way, the error of closing is what comes out."""
    for joins in (False, True):
        with pytest.raises(ScriptedFailure, match="late"):
            await heard(provider_of(Finish(), OnClose(on_close="late", joins=joins)), ask())


@pytest.mark.trio
async def test_closing_may_replace_the_cancellation() -> None:
    """The cancellation is gone and only the error is seen, as careless cleanup does it."""
    with trio.CancelScope() as scope:
        with pytest.raises(ScriptedFailure, match="late") as caught:
            await cancelled_inside(provider_of(OnClose(on_close="late")), scope)
        assert isinstance(caught.value.__context__, trio.Cancelled)
    assert not scope.cancelled_caught


@pytest.mark.trio
async def test_closing_may_join_the_cancellation() -> None:
    """Error and cancellation come out together, so that the scope takes its own and the error is left."""
    scope = trio.CancelScope()
    with pytest.raises(BaseExceptionGroup) as caught, scope:
        await cancelled_inside(provider_of(OnClose(on_close="late", joins=True)), scope)
    assert [str(error) for error in caught.value.exceptions] == ["late"]


@pytest.mark.trio
async def test_closing_joins_an_error_of_the_body() -> None:
    """An ordinary error in the block is joined in the same way."""
    with pytest.raises(ExceptionGroup) as caught:
        await heard(provider_of(Cut(cut="reset"), OnClose(on_close="late", joins=True)), ask())
    assert [str(error) for error in caught.value.exceptions] == ["reset", "late"]


@pytest.mark.trio
async def test_slow_closing_takes_its_time_whatever_is_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A provider that is slow to let go holds its opener for that long, and no longer."""
    began = trio.current_time()
    with trio.CancelScope() as scope:
        await cancelled_inside(provider_of(SlowClose(close_ms=4_000)), scope)
    assert scope.cancelled_caught
    assert trio.current_time() - began == pytest.approx(4)


@pytest.mark.trio
async def test_a_closed_request_cannot_be_read() -> None:
    """Events outside the block are a mistake of the reader, told as one."""
    async with provider_of(Finish()).open(ask()) as events:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        await anext(events)


@pytest.mark.trio
async def test_leaving_early_leaves_nothing_behind() -> None:
    """A stream that isn't read to its end is no generator: nothing is left for the collector to finish."""
    provider = provider_of(Text(text="abc", chunks=3), Finish())

    async def first_of(events: AsyncIterator[ports.ProviderEvent]) -> ports.ProviderEvent:
        async for event in events:
            return event
        raise AssertionError

    with trio.testing.assert_checkpoints():
        async with provider.open(ask()) as events:
            assert await first_of(events) == ports.TextStart()
    assert not hasattr(events, "aclose")
    del events
    gc.collect()


@pytest.mark.trio
async def test_the_same_script_says_the_same_twice() -> None:
    """Playing changes nothing in the script."""
    script = reply(Text(text="abc", chunks=2), Finish())
    before = attrs.asdict(script)
    provider = ScriptedProvider(RealClock(), [script])
    assert await heard(provider, ask("a")) == await heard(provider, ask("b"))
    assert attrs.asdict(script) == before
