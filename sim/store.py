"""`engine.ports.Store` inside a simulated run: one SQLite database in memory, one inline writer per node.

The works and the batch code are the engine's own. What a writer thread does by running beside the Trio
thread, a writer task does here by passing gates: `commit` while works are queued, `committed` between the
commit and the hop. How many works a batch takes is a draw. Nodes share one connection, which is safe because
a batch contains no `await`; another node learns of a commit through its doorbell, some while later.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs
import msgspec
import trio

from engine.errors import CommitOutcomeUnknown, ConstraintBroken, StoreClosed, StoreError
from engine.events import Stored
from engine.ports import Reader, StoreHealth, StoreObserver, Transaction
from engine.store.batch import Item, settle_hop, tell_observer
from engine.store.mapping import own_copy
from sim.clock import NodeClock
from sim.database import SimDatabase
from sim.disk.driver import Refusal
from sim.gate import Gate, Node, NodeState
from sim.history import Commit, Recorder
from sim.kernel import NS_PER_MS, Kernel
from sim.roster import acting_as

T = TypeVar("T")

EventKey = tuple[str, str, str | None]
"""(type, session id, assistant message id) of an event, as fault triggers see it."""

DOORBELL_MS = (0, 10, 25, 50)
"""How late another node may notice a commit; which of them is a draw."""

_TRACED_BYTES_MAX = 256


@attrs.frozen(kw_only=True)
class InjectedError:
    """The outcome that a fault gives a batch.

    With `applied` the batch is committed all the same, and its callers can't know: they get
    `CommitOutcomeUnknown`, and the hop doesn't run. With a `refusal` the batch runs, and one statement of
    it fails. Otherwise `error` is raised and nothing is applied.
    """

    error: StoreError
    applied: bool = False
    refusal: Refusal | None = None


BatchFault = Callable[[Node, Sequence[str]], InjectedError | None]
"""Asked before each batch, with the labels of its works in order."""


@attrs.define(eq=False)
class _Waiting:
    """A write whose caller waits at `gate`."""

    item: Item
    gate: Gate
    recorder: Recorder


class SimStore:
    """The store of one incarnation of a node. `start` its two tasks before it is used."""

    def __init__(
        self,
        database: SimDatabase,
        kernel: Kernel,
        node: Node,
        clock: NodeClock,
        *,
        batch_works_max: int = 256,
    ) -> None:
        self.peek = False  #: tell `before_commit` which events the queued works would write
        self.faults: BatchFault | None = None
        self._database = database
        self._kernel = kernel
        self._node = node
        self._clock = clock
        self._batch_works_max = batch_works_max
        self._observers: list[StoreObserver] = []
        self._queue: list[_Waiting] = []
        self._idle: Gate | None = None
        self._bell: Gate | None = None
        self._rung = False
        self._closed = False
        self._error: str | None = None
        database.on_commit(self._ring)

    def start(self, nursery: trio.Nursery) -> None:
        """Start the writer and the doorbell; cancelling them closes the store."""
        with acting_as(self._node):
            nursery.start_soon(self.run_writer, name="store writer")
            nursery.start_soon(self.run_doorbell, name="store doorbell")

    # --- the port ------------------------------------------------------------------------------------

    async def write(
        self,
        work: Callable[[Transaction], T],
        after_commit: Callable[[T], None] | None = None,
        *,
        label: str = "",
    ) -> T:
        kernel, node = self._kernel, self._node
        if self._closed or _already_cancelled():
            await kernel.gate("write", node=node)
        if self._closed:
            raise StoreClosed("the store is closed")
        if kernel.frozen:
            await kernel.refuse()
        recorder = Recorder()
        item = Item(work=recorder.wrap(work), after_commit=after_commit, label=label)
        gate = kernel.open_gate("write", node=node, asleep=True, info={"write": label})
        waiting = _Waiting(item, gate, recorder)
        self._queue.append(waiting)
        if self._idle is not None:
            self._idle.wake()
        try:
            await gate.wait()
        except BaseException:
            self._withdraw(waiting)
            raise
        kernel.note("write", node, label, error=item.error)
        value: T = item.unwrap()
        return value

    async def read(self, work: Callable[[Reader], T]) -> T:
        kernel, node = self._kernel, self._node
        await kernel.gate("read", node=node)
        if self._closed:
            raise StoreClosed("the store is closed")
        try:
            value = self._database.read(work)
        except Exception as exc:
            kernel.note("read", node, "", error=exc)
            raise
        kernel.note("read", node, "", value=_summary(value))
        await kernel.gate("read done", node=node)
        return value

    def observe(self, observer: StoreObserver) -> None:
        self._observers.append(observer)

    def health(self) -> StoreHealth:
        return StoreHealth(writable=not self._closed, error=self._error, queued=len(self._queue))

    # --- the writer ----------------------------------------------------------------------------------

    async def run_writer(self) -> None:
        """Commit what is queued, batch by batch, until cancelled."""
        try:
            await self._kernel.gate("start", node=self._node)
            while True:
                if not self._queue:
                    await self._wait_queued()
                await self._commit_some()
        finally:
            self._close()

    async def _wait_queued(self) -> None:
        if self._kernel.frozen:
            await self._kernel.refuse()
        self._idle = self._kernel.open_gate("idle", node=self._node, asleep=True)
        try:
            await self._idle.wait()
        finally:
            self._idle = None

    async def _commit_some(self) -> None:
        batch = self._next_batch()
        events = self._peek(batch) if self.peek else ()
        info = {"window": "before_commit", "events": events, "writes": _labels(batch)}
        await self._kernel.gate("commit", node=self._node, info=info)
        taken = [waiting for waiting in batch if waiting in self._queue]
        if not taken:
            return  # all of them were cancelled meanwhile
        for waiting in taken:
            self._queue.remove(waiting)
            waiting.gate.refuse_cancel()
            waiting.recorder.reset()
        now_ms = self._clock.wall_ms
        if self._database.commit_ms or self._database.busy_until_ns > self._kernel.now_ns:
            now_ms = await self._wait_for_disk()
        applied = self._commit(taken, now_ms)
        if applied:
            told = tuple(_event_key(stored) for waiting in taken for stored in waiting.item.told)
            info = {"window": "after_commit", "events": told, "writes": _labels(taken)}
            await self._kernel.gate("committed", node=self._node, deliver_cancel=False, info=info)
        settle_hop([waiting.item for waiting in taken], self._observers)
        for waiting in taken:
            waiting.gate.wake()

    async def _wait_for_disk(self) -> Callable[[], int]:
        """Let those commit that hold the write lock, take it, and let the disk take its time; the clock that
        the works read, which is that of the moment at which they got the lock."""
        database, kernel = self._database, self._kernel
        begins_ns = max(kernel.now_ns, database.busy_until_ns)
        ends_ns = database.busy_until_ns = begins_ns + database.commit_ms * NS_PER_MS
        if begins_ns > kernel.now_ns:
            await self._sleep_locked(begins_ns)
        now_ms = self._clock.wall_ms()
        if ends_ns > kernel.now_ns:
            await self._sleep_locked(ends_ns)
        if kernel.now_ns > ends_ns:
            return self._clock.wall_ms  # it stood still meanwhile, and others may have committed
        return lambda: now_ms

    async def _sleep_locked(self, until_ns: int) -> None:
        """Works that were taken are never abandoned, so no cancellation gets in."""
        gate = self._kernel.open_gate(
            "slow disk", node=self._node, deliver_cancel=False, asleep=True, when_ns=until_ns
        )
        await gate.wait()

    def _next_batch(self) -> list[_Waiting]:
        # Callers that queued in one round did so in an order of Trio's; their gates are numbered.
        self._queue.sort(key=_gate_index)
        most = min(len(self._queue), self._batch_works_max)
        if most == 0:
            return []
        return self._queue[: 1 + self._kernel.tape.draw("store", "batch", most)]

    def _peek(self, batch: Sequence[_Waiting]) -> tuple[EventKey, ...]:
        """The events that the works would write now, found by running them and rolling back."""
        items = [waiting.item for waiting in batch]
        done = self._database.try_out(items, now_ms=self._clock.wall_ms)
        return tuple(_event_key(stored) for tx in done for stored in tx.told)

    def _commit(self, taken: Sequence[_Waiting], now_ms: Callable[[], int]) -> bool:
        """Run the batch, or the fault that strikes it; True if anything was applied."""
        items = [waiting.item for waiting in taken]
        fault = self.faults(self._node, _labels(taken)) if self.faults is not None else None
        if fault is not None and fault.refusal is not None:
            with self._database.refusing(fault.refusal):
                self._database.run_batch(items, now_ms=now_ms, writer_id=self._node.key)
            fault = None  # what became of each work is for the batch code to say
        elif fault is not None and not fault.applied:
            for item in items:
                item.fail(own_copy(fault.error))
        else:
            self._database.run_batch(items, now_ms=now_ms, writer_id=self._node.key)
        self._note_health(items)
        for waiting in taken:
            self._record(waiting)
        applied = any(item.committed for item in items)
        if applied:
            # A node that can't know that it committed hears of it like everybody else.
            self._database.ring(but=self._ring if fault is None else None)
        if fault is not None and fault.applied:
            _hide_outcome(items, fault.error)
        return applied and fault is None

    def _note_health(self, items: Sequence[Item]) -> None:
        errors = [item.error for item in items if isinstance(item.error, StoreError)]
        failures = [error for error in errors if not isinstance(error, ConstraintBroken)]
        if any(item.committed for item in items):
            self._error = None
        elif failures:
            self._error = f"{type(failures[-1]).__name__}: {failures[-1]}"

    def _record(self, waiting: _Waiting) -> None:
        """Write into the trace and the history what became of one work."""
        item, recorder, gate, kernel = waiting.item, waiting.recorder, waiting.gate, self._kernel
        events, claims = tuple(recorder.events), recorder.seen(self._database.history)
        entry = kernel.trace.record(
            "commit" if item.committed else "refused",
            self._node.key,
            gate.task,
            item.label,
            now_ms=recorder.now_ms,
            events=events,
            claims=claims,
            error=item.error,
        )
        if item.committed or isinstance(item.error, CommitOutcomeUnknown):
            commit = Commit(
                entry=entry,
                true_ms=kernel.now_ms,
                node=self._node.key,
                task=gate.task,
                label=item.label,
                now_ms=recorder.now_ms,
                events=events,
                claims=claims,
            )
            self._database.note(item, commit)

    def _withdraw(self, waiting: _Waiting) -> None:
        if waiting in self._queue:
            self._queue.remove(waiting)

    def _close(self) -> None:
        self._closed = True
        if self._kernel.frozen:
            return
        for waiting in self._queue:
            waiting.item.fail(StoreClosed("the store was closed before this write was taken"))
            waiting.gate.wake()
        self._queue.clear()

    # --- other nodes' commits ------------------------------------------------------------------------

    async def run_doorbell(self) -> None:
        """Tell the observers of commits made elsewhere, until cancelled."""
        await self._kernel.gate("start", node=self._node)
        while True:
            if self._kernel.frozen:
                await self._kernel.refuse()
            self._bell = self._kernel.open_gate("doorbell", node=self._node, asleep=True)
            if self._rung:
                self._schedule_bell()
            try:
                await self._bell.wait()
            finally:
                self._bell = None
            self._rung = False
            for observer in self._observers:
                tell_observer(observer.changed_elsewhere)

    def _ring(self) -> None:
        if self._rung or self._closed or self._node.state is NodeState.DEAD:
            return
        self._rung = True
        if self._bell is not None:
            self._schedule_bell()

    def _schedule_bell(self) -> None:
        assert self._bell is not None
        late_ms = DOORBELL_MS[self._kernel.tape.draw("store", "doorbell", len(DOORBELL_MS))]
        if late_ms:
            self._bell.move(self._kernel.now_ns + late_ms * NS_PER_MS)
        else:
            self._bell.wake()


def _already_cancelled() -> bool:
    """True if the caller is cancelled before it has asked for anything, which then mustn't happen."""
    return trio.current_effective_deadline() == -math.inf


def _hide_outcome(items: Sequence[Item], cause: StoreError) -> None:
    for item in items:
        if item.committed:
            error = CommitOutcomeUnknown(
                f"COMMIT failed and it can't be told whether it was applied: {cause}"
            )
            error.__cause__ = cause
            item.fail(error)


def _labels(batch: Sequence[_Waiting]) -> tuple[str, ...]:
    return tuple(waiting.item.label for waiting in batch)


def _gate_index(waiting: _Waiting) -> int:
    return waiting.gate.index


def _event_key(stored: Stored) -> EventKey:
    event = stored.event
    return event.type, event.session_id, getattr(event, "assistant_message_id", None)


def _summary(value: Any) -> bytes | str:
    """The canonical bytes of what a read returned, or their digest; its type's name if it has none."""
    try:
        data = msgspec.msgpack.encode(value, order="deterministic")
    except (TypeError, UnicodeEncodeError, OverflowError):
        return type(value).__name__
    return data if len(data) <= _TRACED_BYTES_MAX else hashlib.blake2b(data, digest_size=16).digest()
