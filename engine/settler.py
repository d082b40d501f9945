"""Settlement as it waits: which of the four ends is due, and its commits, each in a bounded shield."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import trio

from engine import transactions
from engine.endings import Ending, HandedOver, Interrupted, Lost, Quarantined, Unsettled
from engine.errors import ClaimCancelling, ClaimLost, FencepostError, SettlementFailed, StoreError
from engine.log import Published, Stage
from engine.metrics import Metrics
from engine.node import Node
from engine.plan import PlanFunction
from engine.records import Claim, Phase
from engine.settlement import Held

if TYPE_CHECKING:
    from engine.execution import Execution

logger = logging.getLogger("fencepost.execution")


class Settler:
    """Settles one execution once its work has stopped."""

    def __init__(self, node: Node, execution: Execution) -> None:
        self._node = node
        self._execution = execution

    async def settle(self, failure: BaseException | None) -> Ending:
        """Close what is open and say how the execution ended. Never raises for what the store does."""
        execution = self._execution
        if execution.handle.over and execution.ending is not None:
            return execution.ending
        held = await execution.stop_work()
        cancelled = await self._caller_is_cancelled()
        try:
            return await self._what_is_due(held, self._evidence(failure), cancelled=cancelled)
        except ClaimLost as exc:
            self._node.log.metrics.count(Metrics.CLAIMS_LOST)
            logger.info("the claim is lost; its successor goes on", extra=execution.fields())
            return Lost(reason=str(exc))

    async def _what_is_due(self, held: Held, evidence: list[BaseException], *, cancelled: bool) -> Ending:
        """Settle by cause; what goes wrong in that has an ending of its own. Raises `ClaimLost` alone."""
        self._execution.handle.begin_settlement()
        try:
            try:
                return await self._by_cause(held, evidence, cancelled=cancelled)
            except ClaimCancelling:  # an interrupt met a shutdown: the durable phase wins
                return await self._as_interrupted(held)
        except ClaimLost:
            raise
        except (StoreError, SettlementFailed) as exc:
            return await self._give_up(exc)
        except Exception as exc:  # a log that can't be read can't be settled either
            return await self._quarantine(exc)

    def _evidence(self, failure: BaseException | None) -> list[BaseException]:
        """What the work and its reader raised, without what the engine handles anyway."""
        raised = [*_leaves(failure), *_leaves(self._execution.reader_error)]
        return [exc for exc in raised if not isinstance(exc, trio.Cancelled | ClaimLost | ClaimCancelling)]

    async def _caller_is_cancelled(self) -> bool:
        """Asked of Trio by a checkpoint, never guessed from what the work raised."""
        try:
            await self._node.clock.checkpoint()
        except trio.Cancelled:
            return True
        return False

    async def _by_cause(self, held: Held, evidence: list[BaseException], *, cancelled: bool) -> Ending:
        execution = self._execution
        row = execution.row
        if execution.interrupted or row.phase in (Phase.CANCELLING, Phase.CANCELLED):
            for exc in evidence:
                logger.warning("the interrupted work failed, too: %r", exc, extra=execution.fields())
            return await self._as_interrupted(held)
        for exc in evidence:
            if isinstance(exc, StoreError):
                return await self._give_up(exc)
        if evidence and not (execution.stopping or cancelled):
            return await self._quarantine(evidence[0])
        await self._commit(
            lambda tx, row: transactions.settle_shutdown(tx, _held_row(row), held, self._node.config),
            then=execution.closed,
        )
        return HandedOver()

    async def _as_interrupted(self, held: Held) -> Ending:
        execution, config = self._execution, self._node.config
        if execution.row.phase not in (Phase.CANCELLING, Phase.CANCELLED):
            await self._commit(
                lambda tx, row: transactions.ask_to_cancel(tx, _held_row(row), config, anew=False)
            )
        if execution.row.phase is Phase.CANCELLING:
            await self._commit(
                lambda tx, row: transactions.settle_interrupted(tx, _held_row(row), held, config),
                then=execution.closed,
            )
        assert execution.row.phase is Phase.CANCELLED, f"settled, and yet {execution.row.phase}"
        fence = execution.handle.fence
        await self._commit(lambda tx, row: transactions.clear_cancelled(tx, fence), stage=Stage.CLEARING)
        return Interrupted()

    async def _quarantine(self, defect: BaseException) -> Ending:
        execution = self._execution
        fence, reason = execution.handle.fence, f"{type(defect).__name__}: {defect}"
        logger.error("a defect: the session is quarantined", exc_info=defect, extra=execution.fields())
        try:
            await self._commit(
                lambda tx, row: transactions.quarantine(tx, fence, reason),
                stage=Stage.CLEARING,
                # there is no event to ring for it, and whoever waits for the turn must hear of it
                then=lambda published: self._node.log.doorbells.ring(fence.session_id),
            )
        except (StoreError, SettlementFailed) as exc:
            return await self._give_up(exc, because=f"the quarantine for a defect ({reason}) failed")
        return Quarantined(reason=reason)

    async def _give_up(self, why: FencepostError, because: str = "settlement failed") -> Ending:
        """Leave the rest to recovery, and free the claim for it at once if that can be written."""
        execution, fence = self._execution, self._execution.handle.fence
        logger.error("%s: %s", because, why, extra=execution.fields())
        try:
            await self._commit(lambda tx, row: transactions.expire(tx, fence), stage=Stage.CLEARING)
        except FencepostError as exc:
            logger.error("the claim couldn't be freed; it expires by itself: %s", exc)
        return Unsettled(reason=f"{because}: {why}")

    async def _commit(
        self,
        plan: PlanFunction[None],
        *,
        stage: Stage = Stage.SETTLING,
        then: Callable[[Published[None]], None] | None = None,
    ) -> None:
        """One settling commit. Once it is in, its listeners' troubles don't matter any more."""
        committed = False

        def after_commit(published: Published[None]) -> None:
            nonlocal committed
            committed = True
            if then is not None:
                then(published)

        bound = self._node.config.settle_ms_max
        with self._node.clock.scope(self._node.deadline(bound), shield=True):
            await self._execution.publish(plan, stage=stage, after_commit=after_commit, label="settlement")
        if not committed:
            raise SettlementFailed(f"a settling commit didn't come through within {bound} ms")


def _held_row(row: Claim | None) -> Claim:
    assert row is not None, "a fenced publication carries its claim"
    return row


def _leaves(failure: BaseException | None) -> Iterator[BaseException]:
    if isinstance(failure, BaseExceptionGroup):
        for inner in failure.exceptions:
            yield from _leaves(inner)
    elif failure is not None:
        yield failure
