"""Ablations of the commit: what happens around it, in it, and after it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import trio

from engine import events as ev
from engine.doorbell import Bell
from engine.events import Stored
from engine.execution import Execution
from engine.lease import Handle
from engine.log import Log, Published, Stage, append
from engine.plan import Plan, PlanFunction
from engine.ports import Transaction
from engine.runner import Runner
from engine.step_records import Decision
from engine.store.batch import Item, _Batch
from engine.tools import ToolTask
from engine.transactions import turn_now
from sim.ablations.patching import patched

AfterCommit = Callable[[Published[Any]], None] | None


@contextlib.contextmanager
def after_commit_before_notification() -> Iterator[None]:
    """`Log.publish` calls `after_commit` once the listeners were told, instead of in the hop."""
    original = Log.publish

    async def publish(
        self: Log,
        session_id: str,
        plan: PlanFunction[Any],
        *,
        after_commit: AfterCommit = None,
        **rest: Any,
    ) -> Published[Any]:
        published = await original(self, session_id, plan, **rest)
        if after_commit is not None:
            after_commit(published)
        return published

    with patched(Log, "publish", publish):
        yield


@contextlib.contextmanager
def state_replaced_by_commit() -> Iterator[None]:
    """`Runner._commit` replaces the step's state when it is decided, before its events are committed."""
    original = Runner._commit

    async def commit(self: Runner, decision: Decision) -> None:
        self.state = decision.state
        await original(self, decision)

    with patched(Runner, "_commit", commit):
        yield


class _Foreseen(Exception):
    """Takes back a transaction that was only run to see what it would write."""

    def __init__(self, stored: Sequence[Stored]) -> None:
        super().__init__(f"foreseen: {len(stored)} events")
        self.stored = tuple(stored)


@contextlib.contextmanager
def notification_after_commit() -> Iterator[None]:
    """`Log.publish` tells the listeners first, of what a trial of the transaction wrote, and then commits."""
    original, notify = Log.publish, Log._notify

    async def foresee(self: Log, session_id: str, plan: PlanFunction[Any], claim: Handle | None) -> None:
        def trial(tx: Transaction) -> None:
            row = tx.claim(session_id) if claim is not None else None
            raise _Foreseen(append(tx, session_id, plan(tx, row), "evt_foreseen", None, self._config))

        try:
            await self.store.write(trial, label="trial")
        except _Foreseen as foreseen:
            await notify(self, foreseen.stored)
        except Exception:
            return  # the write itself will say what is wrong

    async def publish(
        self: Log, session_id: str, plan: PlanFunction[Any], *, claim: Handle | None = None, **rest: Any
    ) -> Published[Any]:
        await foresee(self, session_id, plan, claim)
        return await original(self, session_id, plan, claim=claim, **rest)

    async def notify_nobody(self: Log, stored: Sequence[Stored]) -> None:
        return

    with patched(Log, "publish", publish), patched(Log, "_notify", notify_nobody):
        yield


@contextlib.contextmanager
def fenced_tool_result() -> Iterator[None]:
    """`Execution.publish` writes what begins with a tool's result outside the claim's transaction."""
    original = Execution.publish
    results = (ev.ToolSucceeded.type, ev.ToolFailed.type)

    async def publish(
        self: Execution,
        plan: PlanFunction[Any],
        *,
        stage: Stage = Stage.RUNNING,
        after_commit: AfterCommit = None,
        label: str = "",
    ) -> Published[Any]:
        if label not in results:
            return await original(self, plan, stage=stage, after_commit=after_commit, label=label)
        return await self._node.log.publish(
            self._session.session_id,
            plan,
            execution_id=self.handle.fence.execution_id,
            after_commit=after_commit,
            label=label,
        )

    with patched(Execution, "publish", publish):
        yield


@contextlib.contextmanager
def tool_after_its_call() -> Iterator[None]:
    """`Runner._prepare` lets the tool go at once, before `tool.called` is committed."""
    original = Runner._prepare

    def prepare(self: Runner, call: ev.ToolCalled) -> ToolTask:
        task = original(self, call)
        task.go()
        return task

    with patched(Runner, "_prepare", prepare):
        yield


@contextlib.contextmanager
def doorbell_kept() -> Iterator[None]:
    """`Bell.wait` forgets what rang before it, and so what rang during the read that came before it."""

    async def wait(self: Bell) -> None:
        self._rung = trio.Event()
        await self._rung.wait()
        await self._clock.checkpoint()

    with patched(Bell, "wait", wait):
        yield


@contextlib.contextmanager
def innocents_run_again() -> Iterator[None]:
    """`_Batch._round` takes the works beside one that broke the transaction for done: none runs again."""
    original = _Batch._round

    def one_round(self: _Batch, items: list[Item]) -> list[Item]:
        for item in original(self, items):
            item.committed = item.error is None
        return []

    with patched(_Batch, "_round", one_round):
        yield


@contextlib.contextmanager
def promotion_in_the_claims_transaction() -> Iterator[None]:
    """`Execution._next` promotes what waits in a transaction of its own, which the claim doesn't fence."""
    original = Execution._next

    async def go_on(self: Execution, over: Decision | None, upcoming: Runner) -> Published[Any]:
        if over is None and not self.stopping:
            await self._node.log.publish(
                self._session.session_id,
                lambda tx, row: _promotion(self, tx),
                execution_id=self.handle.fence.execution_id,
                label="promotion",
            )
        return await original(self, over, upcoming)

    with patched(Execution, "_next", go_on):
        yield


def _promotion(execution: Execution, tx: Transaction) -> Plan[None]:
    session_id = execution._session.session_id
    waiting = tx.pending_inputs(session_id, "steer", execution._node.config.steers_per_promotion_max)
    if not waiting and not turn_now(tx, session_id, execution._turn).owed:
        waiting = tx.pending_inputs(session_id, "queue", 1)
    events = [ev.InputPromoted(session_id=session_id, input_id=one.input_id) for one in waiting]
    return Plan(events=events, value=None)
