"""Keeping a claim on a real store, by a clock that only moves when it is told to."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from engine import events as ev
from engine.acquiring import Acquired, acquire
from engine.doorbell import Bell
from engine.errors import ClaimLost, CommitOutcomeUnknown, StoreBusy, StoreIOError
from engine.keeping import RETRY_PARTS, keep
from engine.lease import Handle
from engine.node import Node
from engine.plan import command
from engine.ports import Scope, Store, Transaction
from engine.records import Claim
from engine.system import RealClock
from engine.transactions import claim_request
from tests.engine.real import CONFIG, claim_of, created, node_of, open_log, publish, until

SES = "ses_a"
INTERVAL_S = CONFIG.renew_interval_ms / 1000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a new database may go."""
    return tmp_path / "lease.db"


@attrs.define(eq=False)
class _SteppedScope:
    scope: trio.CancelScope
    deadline: float

    @property
    def cancel_called(self) -> bool:
        return self.scope.cancel_called

    @property
    def cancelled_caught(self) -> bool:
        return self.scope.cancelled_caught

    def cancel(self) -> None:
        self.scope.cancel()

    def extend(self, deadline: float) -> None:
        self.deadline = max(self.deadline, deadline)


class SteppedClock(RealClock):
    """A monotonic clock that stands still until `advance`."""

    def __init__(self) -> None:
        self.reading = 1_000.0
        self._scopes: list[_SteppedScope] = []

    def monotonic(self) -> float:
        return self.reading

    def scope(
        self, deadline: float = math.inf, *, shield: bool = False
    ) -> AbstractContextManager[Scope, Any]:
        return self._scope(_SteppedScope(trio.CancelScope(shield=shield), deadline))

    @contextmanager
    def _scope(self, scope: _SteppedScope) -> Iterator[Any]:
        self._scopes.append(scope)
        try:
            with scope.scope:
                self._end_due()
                yield scope
        finally:
            self._scopes.remove(scope)

    def advance(self, seconds: float) -> None:
        self.reading += seconds
        self._end_due()

    def _end_due(self) -> None:
        for scope in self._scopes:
            if scope.deadline <= self.reading:
                scope.cancel()


@attrs.define
class Kept:
    """A claim that is being kept, and what its keeper saw."""

    node: Node
    handle: Handle
    clock: SteppedClock
    bell: Bell
    saw: list[Claim]
    ended: trio.Event

    async def row(self) -> Claim:
        row = await claim_of(self.node.log, SES)
        assert row is not None
        return row

    async def change(self, **fields: Any) -> None:
        """Change the claim's row behind its owner's back."""
        row = await self.row()
        await self.node.log.store.write(lambda tx: tx.put_claim(attrs.evolve(row, **fields)))

    async def asleep(self) -> None:
        """Wait until the keeper waits for its bell again, all rings answered."""
        await until(
            lambda: self.bell._rung.statistics().tasks_waiting == 1 or self.ended.is_set(),
        )

    async def tick(self, seconds: float) -> None:
        await self.asleep()
        self.clock.advance(seconds)
        await trio.testing.wait_all_tasks_blocked()
        await self.asleep()


class Failing:
    """A store whose renewals fail with what is in `errors`, first one first."""

    def __init__(self, store: Store, errors: list[Exception]) -> None:
        self._store = store
        self.errors = errors

    async def write(self, work: Any, after_commit: Any = None, *, label: str = "") -> Any:
        if label == "renewal" and self.errors:
            await trio.lowlevel.checkpoint()
            raise self.errors.pop(0)
        return await self._store.write(work, after_commit, label=label)

    async def read(self, work: Any) -> Any:
        return await self._store.read(work)


@asynccontextmanager
async def kept(path: Path, errors: list[Exception] | None = None) -> AsyncIterator[Kept]:
    """A claim of `SES` under its keeper; its renewals fail with `errors`, first one first."""
    clock = SteppedClock()
    async with open_log(path) as log, trio.open_nursery() as nursery:
        node = node_of(log, nursery)
        node.system = attrs.evolve(node.system, clock=clock)
        admitted = ev.InputAdmitted(
            session_id=SES, input_id="inp_1", kind="user", delivery="steer", payload={}
        )
        await publish(log, created(SES), admitted)
        got: list[Acquired] = []
        assert await acquire(node, SES, None, got.append)
        log.store = Failing(log.store, [] if errors is None else errors)  # type: ignore[assignment]
        with log.doorbells.bell(SES) as bell:
            one = Kept(node, got[0].handle, clock, bell, [], trio.Event())

            async def run() -> None:
                await keep(node, one.handle, bell, one.saw.append)
                one.ended.set()

            nursery.start_soon(run)
            yield one
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_renews_every_third(path: Path) -> None:
    """Each third of the lease, and not before, the claim is renewed and the handle's deadline moves on."""
    async with kept(path) as one:
        version, deadline = (await one.row()).version, one.handle.deadline
        for number in range(1, 4):
            await one.tick(INTERVAL_S - 0.001)
            assert (await one.row()).version == version + number - 1
            await one.tick(0.001)
            assert (await one.row()).version == version + number
            assert one.handle.deadline == pytest.approx(deadline + number * INTERVAL_S)
        assert len(one.saw) == 3


@pytest.mark.trio
async def test_failed_renewal_is_tried_again(path: Path) -> None:
    """A failing store costs nothing by itself: the renewal is tried again after a tenth of the interval."""
    errors: list[Exception] = [StoreBusy("busy"), StoreIOError("broken"), StoreBusy("busy")]
    async with kept(path, errors) as one:
        version = (await one.row()).version
        await one.tick(INTERVAL_S)
        for left in (2, 1, 0):
            assert (len(errors), one.handle.lost) == (left, None)
            assert (await one.row()).version == version
            await one.tick(INTERVAL_S / RETRY_PARTS)
        assert (await one.row()).version == version + 1
        one.handle.check()


@pytest.mark.trio
async def test_renewals_that_go_on_failing_lose_by_the_handles_own_deadline(path: Path) -> None:
    """Without a renewal the handle is dead at its deadline, before the lease is over, and the keeper ends."""
    errors: list[Exception] = [StoreBusy("busy") for _ in range(1_000)]
    async with kept(path, errors) as one:
        lost: list[float] = []
        one.handle.on_lost = lambda: lost.append(one.clock.monotonic())
        begun = one.clock.monotonic()
        while not one.ended.is_set():
            await one.tick(INTERVAL_S / RETRY_PARTS)
        assert len(lost) == 1
        assert lost[0] - begun < CONFIG.lease_ms / 1000
        with pytest.raises(ClaimLost):
            one.handle.check()
        assert errors


@pytest.mark.trio
@pytest.mark.parametrize("how", ["taken over", "expired", "outcome unknown"])
async def test_refused_renewal_latches(path: Path, how: str) -> None:
    """A renewal that is refused, or whose outcome is unknown, is the end of the handle and its keeper."""
    errors: list[Exception] = [CommitOutcomeUnknown("who knows")] if how == "outcome unknown" else []
    async with kept(path, errors) as one:
        if how == "taken over":
            await one.change(execution_id="exe_other", generation=2)
        if how == "expired":
            await one.change(expires_at=2)
        before = await one.row()
        await one.tick(INTERVAL_S)
        await one.ended.wait()
        assert one.handle.lost is not None
        with pytest.raises(ClaimLost):
            one.handle.check()
        if how != "outcome unknown":
            assert await one.row() == before


@pytest.mark.trio
async def test_doorbell_shows_an_interrupt(path: Path) -> None:
    """An interrupt that somebody else writes is seen at the bell, without waiting for a renewal."""

    async def ask(one: Kept) -> None:
        row = await one.row()

        def work(tx: Transaction) -> None:
            command(tx, SES, claim_request(row, 7))

        await one.node.log.store.write(work)

    async with kept(path) as one:
        await one.asleep()
        await ask(one)
        one.bell.ring()
        await until(lambda: bool(one.saw))
        assert one.saw[-1].interrupt_seq == 7


@pytest.mark.trio
async def test_foreign_rows_are_not_seen(path: Path) -> None:
    """The row of a successor says nothing to the former owner's keeper."""
    async with kept(path) as one:
        await one.change(execution_id="exe_other", interrupt_seq=3)
        await one.asleep()
        one.bell.ring()
        await trio.testing.wait_all_tasks_blocked()
        await one.asleep()
        assert one.saw == []


@pytest.mark.trio
async def test_keeper_ends_with_its_handle(path: Path) -> None:
    """Once the claim is over the keeper ends at its next turn and writes nothing more."""
    async with kept(path) as one:
        before = await one.row()
        await one.asleep()
        one.handle.over = True
        one.clock.advance(INTERVAL_S)
        await one.ended.wait()
        assert await one.row() == before
