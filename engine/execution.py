"""One execution of one session: its nursery, its work, the renewal beside it, and its settlement.

How it ends is decided by the durable phase and by the causes noted where they arise (an interrupt, a
shutdown, a lost claim, a failing store), never by the type of an exception: clean-up may replace a
cancellation, or join it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import trio

from engine import drain, transactions
from engine.doorbell import Bell
from engine.endings import Ending, FailedWith, HandedOver, Succeeded
from engine.errors import ClaimCancelling, LocationFailed, StoreBusy, StoreInterrupted
from engine.history import History
from engine.keeping import keep
from engine.lease import Handle
from engine.locations import Services
from engine.log import Published, Stage
from engine.node import Node
from engine.plan import Plan, PlanFunction
from engine.ports import Scope, Transaction
from engine.records import Claim, ErrorInfo, Phase, SessionRow
from engine.runner import Runner
from engine.settlement import NOTHING_HELD, Held
from engine.settler import Settler
from engine.step_records import Decision
from engine.turn import Turn

logger = logging.getLogger("fencepost.execution")
V = TypeVar("V")

BUSY_RETRY_S = 0.1


class Execution:
    """Runs a claimed session until its drain ends or something interrupts it."""

    def __init__(
        self, node: Node, handle: Handle, session: SessionRow, row: Claim, *, takeovers: int
    ) -> None:
        self.handle = handle
        self.row = row  #: the claim as our own latest commit left it
        self.done = trio.Event()
        self.ending: Ending | None = None
        self.runner: Runner | None = None  #: the step that is open, if one is
        self._node = node
        self._session = session
        self._takeovers = takeovers
        self._turn = Turn()
        self._history = History()
        self.interrupted = False  #: a user asked for the end of the turn
        self.stopping = False  #: the node shuts down
        self.reader_error: Exception | None = None  #: raised beside the work; evidence like what it raises
        self._idle = False  #: waits for a retry: nothing runs that deserves a grace
        self._work_scope: Scope | None = None
        self._keep_scope: Scope | None = None
        self._kept = False

    # --- told from outside ---------------------------------------------------------------------------

    def cancel_for_user(self) -> None:
        """An interrupt is durable: stop the work and settle as interrupted by a user."""
        self.interrupted = True
        self._cancel_work()

    def stop_soon(self) -> None:
        """A shutdown began: hand over at the next step boundary."""
        self.stopping = True
        if self._idle:
            self._cancel_work()

    def stop_now(self) -> None:
        """The grace of a shutdown is over."""
        self.stopping = True
        self._cancel_work()

    def _reader_failed(self, error: Exception) -> None:
        """A step can't go on without its reader."""
        self.reader_error = self.reader_error or error
        self._cancel_work()

    def _cancel_work(self) -> None:
        if self._work_scope is not None:
            self._work_scope.cancel()

    def _saw(self, row: Claim) -> None:
        """The claim as a renewal or a doorbell found it: perhaps another node asked for an interrupt."""
        if row.interrupt_seq is not None and not self.interrupted:
            self.cancel_for_user()

    # --- the life of an execution --------------------------------------------------------------------

    async def run(self, bell: Bell) -> Ending:
        """Work, settle, and say how it ended. Raises only what ends the caller, too."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep, bell, name=f"{self._session.session_id}/keep")
                try:
                    failure = await self._guarded()
                    self.ending = await Settler(self._node, self).settle(failure)
                finally:
                    self._stop_keeping()  # else a fault of ours would be renewed for ever
        finally:
            self.done.set()
        await self._node.clock.checkpoint()
        assert self.ending is not None
        return self.ending

    @trio.lowlevel.enable_ki_protection
    async def _keep(self, bell: Bell) -> None:
        """The renewal loop. Its shield is bounded by the lease, and ended by hand after settlement."""
        with self._node.clock.scope(self.handle.deadline, shield=True) as scope:
            self._keep_scope = scope
            self.handle.watch(scope)
            if not self._kept:
                await keep(self._node, self.handle, bell, self._saw)

    def _stop_keeping(self) -> None:
        self._kept = True
        if self._keep_scope is not None:
            self._keep_scope.cancel()

    async def _guarded(self) -> BaseException | None:
        """The work inside the scope that ends before the lease does. What it raised is only evidence."""
        try:
            with self._node.clock.scope(self.handle.deadline) as scope:
                self._work_scope = scope
                self.handle.watch(scope)
                self.handle.on_lost = scope.cancel
                if self.interrupted or self.stopping:
                    scope.cancel()
                await self._work()
        except BaseException as exc:  # a Cancelled of the caller's is asked for again, by a checkpoint
            return exc
        return None

    # --- the work ------------------------------------------------------------------------------------

    async def _work(self) -> None:
        if self.row.phase in (Phase.CANCELLING, Phase.CANCELLED) or self.row.interrupt_seq is not None:
            self.interrupted = True  # its owner died: finish the cancellation, don't resume
            return
        spent = self._takeovers > self._node.config.takeovers_max
        exhausted = spent and self.row.phase is not Phase.SAFE  # what is settled costs nothing to finish
        if (self.row.phase is Phase.UNKNOWN or exhausted) and not await self._recover(exhausted):
            return
        try:
            async with self._node.locations.use(self._session.location) as services:
                await self._drain(services)
        except LocationFailed as exc:
            await self._fail(ErrorInfo(type="location-failed", message=str(exc)))

    async def _recover(self, exhausted: bool) -> bool:
        """Settle what a lost execution left open. False if the execution ended with it."""
        config = self._node.config

        def after_commit(published: Published[ErrorInfo | None]) -> None:
            if published.value is not None:
                self.ending = FailedWith(error=published.value)

        def plan(tx: Transaction, row: Claim | None) -> Plan[ErrorInfo | None]:
            assert row is not None
            return transactions.recover_unknown(tx, row, config, exhausted)

        published = await self.publish(plan, after_commit=after_commit, label="recovery")
        return published.value is None

    async def _fail(self, error: ErrorInfo) -> None:
        """End the execution between two steps: it can't go on here."""
        fence = self.handle.fence

        def after_commit(published: Published[None]) -> None:
            self.ending = FailedWith(error=error)

        await self.publish(
            lambda tx, row: transactions.fail(tx, fence, error), after_commit=after_commit, label="failed"
        )

    async def _drain(self, services: Services) -> None:
        over: Decision | None = None
        while True:
            upcoming = self._prepare(services)
            try:
                published = await self._next(over, upcoming)
            finally:
                if self.runner is not upcoming:
                    upcoming.drop()
            if over is not None:
                upcoming.tell(over.live)
            move, over = published.value.move, None
            match move:
                case drain.Begin():
                    over = await upcoming.run()
                case drain.Retry(at=at) | drain.Wait(until=at):
                    await self._wait_until(at)
                case drain.Rest():
                    pass
                case drain.Succeed() | drain.Fail() | drain.HandOver():
                    return

    def _prepare(self, services: Services) -> Runner:
        upcoming = Runner(
            self._node,
            self.handle,
            self._session,
            services,
            self._history,
            self.publish,
            self._reader_failed,
            self._node.system.ids.new("msg"),
        )
        upcoming.start()
        return upcoming

    async def _next(self, over: Decision | None, upcoming: Runner) -> Published[transactions.Next]:
        """One boundary: the closing step's terminal and whatever comes next, in one transaction."""
        closing = self.runner if over is not None else None
        fraction = self._node.system.chance.fraction()
        fence, turn, config, stopping = self.handle.fence, self._turn, self._node.config, self.stopping

        def after_commit(published: Published[transactions.Next]) -> None:
            self._turn = published.value.turn
            if closing is not None and over is not None:
                closing.state = over.state
                closing.closed(published.stored[len(over.durable) :])
            self._take(published.value.move, upcoming)

        return await self.publish(
            lambda tx, row: transactions.next_move(
                tx,
                fence,
                turn,
                over,
                None if closing is None else closing.message_id,
                upcoming.message_id,
                fraction=fraction,
                stopping=stopping,
                config=config,
            ),
            after_commit=after_commit,
            label="boundary",
        )

    def _take(self, move: drain.Move, upcoming: Runner) -> None:
        """In the hop: what a committed move makes of this execution's memory."""
        self.runner = None
        match move:
            case drain.Begin():
                self.runner = upcoming
                upcoming.begin(attempt=move.attempt, tools_allowed=move.tools_allowed)
            case drain.Succeed():
                self.ending = Succeeded()
            case drain.Fail(error=error):
                self.ending = FailedWith(error=error)
            case drain.HandOver():
                self.ending = HandedOver()

    async def _wait_until(self, wall_ms: int) -> None:
        clock = self._node.clock
        self._idle = True
        if self.stopping:
            self._cancel_work()
        # A clock that is set back meanwhile is met when the next move is decided; one that was set back since
        # the last must not make this wait longer than any retry may take.
        wait_ms = min(wall_ms - clock.now_ms(), self._node.config.retry_after_ms_max)
        await clock.sleep(max(0, wait_ms) / 1000)
        self._idle = False

    async def publish(
        self,
        plan: PlanFunction[V],
        *,
        stage: Stage = Stage.RUNNING,
        after_commit: Callable[[Published[V]], None] | None = None,
        label: str = "",
    ) -> Published[V]:
        """Publish under our claim. A busy store is tried again for as long as the lease allows: nothing was
        applied, so the very same plan may run again."""

        def hop(published: Published[V]) -> None:
            if published.row is not None and published.row.execution_id == self.handle.fence.execution_id:
                self.row = published.row
            if after_commit is not None:
                after_commit(published)

        while True:
            try:
                return await self._node.log.publish(
                    self._session.session_id,
                    plan,
                    claim=self.handle,
                    stage=stage,
                    after_commit=hop,
                    label=label,
                )
            except (StoreBusy, StoreInterrupted):
                logger.info("the store was busy; trying again", extra=self.fields())
                await self._node.clock.sleep(BUSY_RETRY_S)
            except ClaimCancelling:
                self.interrupted = True
                raise

    async def stop_work(self) -> Held:
        """Stop what the open step still runs here; return what this process holds of it."""
        return NOTHING_HELD if self.runner is None else await self.runner.stop()

    def closed(self, published: Published[None]) -> None:
        """In the hop of a settlement: the step is closed, in memory, too."""
        if self.runner is not None:
            self.runner.closed(published.stored)
            self.runner = None

    def fields(self) -> dict[str, str]:
        """What a log record about this execution carries."""
        fence = self.handle.fence
        return {"session_id": fence.session_id, "execution_id": fence.execution_id}
