"""Ablations of settlement, the drain and recovery: what is decided, and in which transaction."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import trio

from engine import acquiring, drain, transactions
from engine import events as ev
from engine.drain import Move, View
from engine.endings import Ending
from engine.execution import Execution
from engine.limits import EngineConfig
from engine.log import Published
from engine.plan import WHOLE, Plan, PlanFunction
from engine.ports import Clock, Reader, Transaction
from engine.records import Claim, Fence, InputRow, RecoveryRow
from engine.runner import Runner
from engine.settler import Settler
from engine.step_records import Decision, Failed
from engine.store.transaction import SqliteReader
from engine.turn import Turn
from sim.ablations.patching import patched

# --- settlement --------------------------------------------------------------------------------------


class _WithoutShields:
    """A clock whose scopes never shield."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    def scope(self, deadline: float = math.inf, *, shield: bool = False) -> Any:
        return self._clock.scope(deadline)


@contextlib.contextmanager
def settlement_in_a_shield() -> Iterator[None]:
    """`Settler._commit` is bounded as before, and not shielded: a cancellation of the caller reaches it, and
    ends the execution with its renewal."""
    original, settle = Settler._commit, Settler.settle

    async def commit(self: Settler, plan: PlanFunction[None], **rest: Any) -> None:
        clock: Any = _WithoutShields(self._node.clock)
        system = attrs.evolve(self._node.system, clock=clock)
        bare = Settler(attrs.evolve(self._node, system=system), self._execution)
        await original(bare, plan, **rest)

    async def settle_or_end(self: Settler, failure: BaseException | None) -> Ending:
        try:
            return await settle(self, failure)
        except trio.Cancelled:
            self._execution._stop_keeping()
            raise

    with patched(Settler, "_commit", commit), patched(Settler, "settle", settle_or_end):
        yield


@contextlib.contextmanager
def settlement_by_phase() -> Iterator[None]:
    """`Settler.settle` takes a cancellation that the work raised for an interrupt by a user, though no phase
    says so."""
    original = Settler.settle

    async def settle(self: Settler, failure: BaseException | None) -> Ending:
        if isinstance(failure, trio.Cancelled):
            self._execution.interrupted = True
        return await original(self, failure)

    with patched(Settler, "settle", settle):
        yield


@contextlib.contextmanager
def settlement_in_one_transaction() -> Iterator[None]:
    """An interrupt's settlement commits the phase first, and its events with the clearing that comes next."""
    settle, clear = transactions.settle_interrupted, transactions.clear_cancelled
    due: dict[str, Sequence[ev.Event]] = {}

    def phase_first(tx: Transaction, row: Claim, *rest: Any, **named: Any) -> Plan[None]:
        whole = settle(tx, row, *rest, **named)
        due[row.execution_id] = whole.events
        return attrs.evolve(whole, events=())

    def then_events(tx: Transaction, fence: Fence) -> Plan[None]:
        return attrs.evolve(clear(tx, fence), events=due.get(fence.execution_id, ()))

    with (
        patched(transactions, "settle_interrupted", phase_first),
        patched(transactions, "clear_cancelled", then_events),
    ):
        yield


# --- recovery ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def attempts_counted_first() -> Iterator[None]:
    """A take-over is counted by the first commit of the resumed drain, and not by its own."""
    written, settled = transactions.recovery_after_takeover, transactions._settle_recovery

    def uncounted(
        old: RecoveryRow | None, row: Claim, previous: Claim, last_message_id: str | None
    ) -> RecoveryRow:
        takeovers = 0 if old is None else old.takeovers
        return attrs.evolve(written(old, row, previous, last_message_id), takeovers=takeovers)

    def counting(tx: Transaction, session_id: str, stored: Sequence[ev.Stored], *, ended: bool) -> None:
        row = tx.recovery(session_id)
        if row is not None and row.wake_pending:
            tx.put_recovery(attrs.evolve(row, takeovers=row.takeovers + 1))
        settled(tx, session_id, stored, ended=ended)

    with (
        patched(acquiring, "recovery_after_takeover", uncounted),
        patched(transactions, "_settle_recovery", counting),
    ):
        yield


# --- the drain ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def parked_stays_parked() -> Iterator[None]:
    """`pending_inputs` of the store returns parked inputs, too."""

    def pending_inputs(self: SqliteReader, session_id: str, delivery: str, limit: int) -> list[InputRow]:
        pending = [one for one in self.inputs(session_id) if one.state == "pending"]
        return [one for one in pending if one.delivery == delivery][:limit]

    with patched(SqliteReader, "pending_inputs", pending_inputs):
        yield


@contextlib.contextmanager
def retry_before_visible_output() -> Iterator[None]:
    """`drain._after_failure` takes no step for visible, and retries it."""
    original = drain._after_failure

    def after_failure(view: View, failed: Failed, config: EngineConfig) -> Move:
        return original(view, attrs.evolve(failed, visible=False), config)

    with patched(drain, "_after_failure", after_failure):
        yield


class _NothingPending:
    """A transaction that goes by an earlier look at the inbox, which found it empty."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def pending_inputs(self, session_id: str, delivery: str, limit: int) -> list[InputRow]:
        return []


@contextlib.contextmanager
def clear_where_nothing_was_pending() -> Iterator[None]:
    """`Execution._next` looks for pending input in a transaction of its own, before the one that clears."""
    go_on, next_move = Execution._next, transactions.next_move
    empty: dict[str, bool] = {}

    async def look_first(self: Execution, over: Decision | None, upcoming: Runner) -> Published[Any]:
        session_id = self._session.session_id

        def look(tx: Reader) -> bool:
            return not (
                tx.pending_inputs(session_id, "steer", WHOLE) or tx.pending_inputs(session_id, "queue", 1)
            )

        empty[self.handle.fence.execution_id] = await self._node.log.store.read(look)
        return await go_on(self, over, upcoming)

    def as_seen(
        tx: Transaction,
        fence: Fence,
        known: Turn,
        over: Decision | None,
        *rest: Any,
        **named: Any,
    ) -> Plan[Any]:
        seen: Any = _NothingPending(tx) if empty.get(fence.execution_id) else tx
        return next_move(seen, fence, known, over, *rest, **named)

    with patched(Execution, "_next", look_first), patched(transactions, "next_move", as_seen):
        yield
