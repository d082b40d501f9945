"""Whole turns, driven by nothing but the drain's decisions over a log kept in a list."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import drain, turn
from engine import events as ev
from engine.limits import EngineConfig
from engine.records import ErrorInfo, InputRow, Phase, Usage
from engine.retry import failure
from engine.step import Closing, Ended, Failed
from engine.turn import Turn
from tests.engine.test_drain import SESSION, row

UNKNOWN = ErrorInfo(type="unknown", message="m")


class World:
    """A session without a store: pending inputs, a log, a clock, and an execution that may be replaced."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.config = EngineConfig(
            steps_max=self.draw(st.integers(1, 3)),
            attempts_max=self.draw(st.integers(1, 3)),
            steers_per_promotion_max=2,
        )
        self.log: list[ev.Event] = []
        self.turn = Turn()
        self.pending: list[InputRow] = []
        self.admitted = 0
        self.now_ms = 0
        self.closing: Closing | None = None
        self.steps = 0
        self.moves: list[drain.Move] = []
        self.tools_allowed: list[bool] = []

    def write(self, events: list[ev.Event]) -> None:
        """Append to the log, and keep the execution's turn up to it."""
        for event in events:
            self.log.append(event)
            self.turn = turn.apply(self.turn, event)

    def arrive(self) -> None:
        """Perhaps one more input."""
        delivery = self.draw(st.sampled_from([None, None, "steer", "queue"]))
        if delivery is not None:
            self.pending.append(row(f"i{self.admitted}", delivery, self.admitted))
            self.admitted += 1

    def by_delivery(self, delivery: str) -> list[InputRow]:
        """Pending inputs of one delivery, oldest first."""
        return [each for each in self.pending if each.delivery == delivery]

    def boundary(self) -> drain.Move:
        """One transaction of the drain."""
        queued = self.by_delivery("queue")
        view = drain.View(
            session=SESSION,
            turn=self.turn,
            closing=self.closing,
            closing_id=None if self.closing is None else f"msg_{self.steps}",
            steers=self.by_delivery("steer")[: self.config.steers_per_promotion_max],
            queued=queued[0] if queued else None,
            latest_seq=len(self.log) - 1,
            now_ms=self.now_ms,
            fraction=self.draw(st.sampled_from([0.0, 0.5, 0.99])),
            stopping=self.draw(st.integers(0, 5)) == 0,
        )
        move = drain.decide(view, self.config)
        self.check(view, move)
        self.write(drain.events(view, move, f"msg_{self.steps + 1}"))
        self.closing = None
        self.moves.append(move)
        return move

    def check(self, view: drain.View, move: drain.Move) -> None:
        """What holds at each boundary, whatever was decided."""
        if view.stopping:
            assert not isinstance(move, drain.Begin | drain.Retry | drain.Wait | drain.Rest)
        if isinstance(move, drain.Succeed):
            assert self.pending == []
        if isinstance(move, drain.Begin):
            self.check_promotion(move)
        if isinstance(move, drain.HandOver) and move.retry is None and view.closing is not None:
            owed = isinstance(view.closing, Failed) or (
                view.closing.calls and self.turn.steps < self.config.steps_max
            )
            assert move.phase == (Phase.CONTINUE if owed else Phase.SAFE)

    def check_promotion(self, move: drain.Begin) -> None:
        """Steers before the queue, first in first out, one queued input per turn."""
        steers, queued = self.by_delivery("steer"), self.by_delivery("queue")
        if move.promote and move.promote[0].delivery == "queue":
            assert move.promote == (queued[0],)
            assert steers == []
        else:
            assert list(move.promote) == steers[: self.config.steers_per_promotion_max]

    def follow(self, move: drain.Move) -> None:
        """Let the world go on as the move says."""
        match move:
            case drain.Begin():
                self.pending = [each for each in self.pending if each not in move.promote]
                self.steps += 1
                self.tools_allowed.append(move.tools_allowed)
                self.step()
            case drain.Retry(at=at) | drain.Wait(until=at):
                self.now_ms += self.draw(st.integers(0, at - self.now_ms)) if at > self.now_ms else 0
                self.now_ms = at if self.draw(st.booleans()) else self.now_ms
            case drain.Fail():
                self.pending = []  # parked: the store doesn't show them any more
            case _:
                pass

    def step(self) -> None:
        """A step runs: it ends in some way, or is cut off by a crash."""
        ids: dict[str, Any] = {"session_id": "ses_1", "assistant_message_id": f"msg_{self.steps}"}
        calls = self.draw(st.booleans())
        if calls:
            self.write([ev.ToolCalled(**ids, call_id="c", name="read", input={})])
        how = self.draw(st.sampled_from(["good", "good", "rate_limit", "auth", "crash"]))
        if how == "good":
            self.closing = Ended(finish="stop", usage=Usage(), calls=calls)
        elif how == "crash":
            self.write([ev.StepInterrupted(**ids, cause="unknown", error=UNKNOWN)])
            self.reload()
        else:
            visible = calls or self.draw(st.booleans())
            self.closing = Failed(failure=failure(how, "m"), usage=None, visible=visible)

    def reload(self) -> None:
        """Another execution takes up the session: it knows what the log says."""
        self.turn = Turn()
        log, self.log = self.log, []
        self.write(log)


@settings(max_examples=400)
@given(st.data())
def test_turns_keep_their_budgets_and_their_order(data: st.DataObject) -> None:
    """Attempts and steps are bounded, every step has its terminal, and nothing is promoted twice."""
    world = World(data)
    for _ in range(data.draw(st.integers(1, 25))):
        world.arrive()
        remembered = world.turn
        world.reload()
        assert world.turn == remembered
        world.follow(world.boundary())
    check_log(world)


def check_log(world: World) -> None:
    """The log's own rules, counted the naive way."""
    failures = good_steps = 0
    open_step = visible = noted = False
    promoted: list[str] = []
    tools = iter(world.tools_allowed)
    for event in world.log:
        match event:
            case ev.InputPromoted():
                promoted.append(event.input_id)
                good_steps = 0
            case ev.Synthetic():
                noted = True
            case ev.StepStarted():
                assert not open_step
                assert event.attempt == failures + 1 <= world.config.attempts_max
                assert not (visible and failures) or noted, "the model isn't told that it was cut off"
                if good_steps >= world.config.steps_max - 1:
                    assert not next(tools)
                else:
                    next(tools)
                open_step, visible, noted = True, False, False
            case ev.ToolCalled():
                visible = True
            case ev.StepEnded() | ev.StepInterrupted():
                open_step, visible = False, False
                failures = 0 if isinstance(event, ev.StepEnded) else failures
                good_steps += isinstance(event, ev.StepEnded)
                assert good_steps <= world.config.steps_max
            case ev.StepFailed():
                open_step = False
                failures += 1
            case ev.RetryScheduled():
                assert not visible
                assert event.attempt == failures + 1
                assert event.at > 0
            case ev.ExecutionSucceeded() | ev.ExecutionFailed():
                assert not open_step
                failures = good_steps = 0
                visible = False
    assert len(promoted) == len(set(promoted))
    assert failures <= world.config.attempts_max


def test_a_whole_turn_costs_what_it_should() -> None:
    """Two calls, a retry in between and an answer: three steps, and the retry isn't one of them."""
    config = EngineConfig(steps_max=3)
    now = Turn()
    kept: list[bool] = []
    outcomes: list[Closing] = [
        Ended(finish="tool_calls", usage=Usage(), calls=True),
        Failed(failure=failure("internal", "m"), usage=None, visible=False),
        Ended(finish="tool_calls", usage=Usage(), calls=True),
        Ended(finish="stop", usage=Usage(), calls=False),
    ]
    closing: Closing | None = None
    queued: InputRow | None = row("q", "queue")
    while True:
        view = drain.View(
            session=SESSION, turn=now, closing=closing, closing_id="msg", steers=(), queued=queued,
            latest_seq=0, now_ms=10**9 if closing is None else 0, fraction=0.5,
        )  # fmt: skip
        move = drain.decide(view, config)
        for event in drain.events(view, move, "msg"):
            now = turn.apply(now, event)
        queued = closing = None
        if isinstance(move, drain.Begin):
            kept.append(move.tools_allowed)
            closing = outcomes.pop(0)
            calls = isinstance(closing, Ended) and closing.calls
            now = attrs.evolve(now, calls=calls)
        elif isinstance(move, drain.Succeed):
            break
    assert kept == [True, True, True, False]
    assert outcomes == []
