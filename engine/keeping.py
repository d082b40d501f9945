"""Keeping a claim: renewed every third of its length, and at each doorbell looked at for an interrupt."""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine.claims import Renew
from engine.doorbell import Bell
from engine.errors import ClaimLost, CommitOutcomeUnknown, StoreError
from engine.lease import Handle
from engine.node import Node
from engine.plan import command
from engine.ports import Reader, Transaction
from engine.records import Claim

logger = logging.getLogger("fencepost.lease")

RETRY_PARTS = 10
"""A renewal that failed is tried again after a tenth of the interval."""


async def keep(node: Node, handle: Handle, bell: Bell, saw: Callable[[Claim], None]) -> None:
    """Renew until the handle is over or lost; tell `saw` each row that was found on the way.

    The interval counts from when the latest good write was *queued*: counted from its outcome, two slow
    writes in a row would outlast the lease. A failing renewal costs nothing by itself: the handle's own
    deadline decides when it is too late.
    """
    await node.clock.checkpoint()
    interval = node.config.renew_interval_ms / 1000
    again = 0.0
    while not handle.over and handle.lost is None:
        if await _rung_before(node, bell, max(handle.sent + interval, again)):
            await _look(node, handle, saw)
        elif not await _renew(node, handle, saw):
            again = node.clock.monotonic() + interval / RETRY_PARTS


async def _rung_before(node: Node, bell: Bell, due: float) -> bool:
    with node.clock.scope(due):
        await bell.wait()
        bell.clear()
        return True
    await node.clock.checkpoint()
    return False


async def _renew(node: Node, handle: Handle, saw: Callable[[Claim], None]) -> bool:
    fence = handle.fence
    renewal = Renew(fence=fence, lease_ms=node.config.lease_ms)

    def work(tx: Transaction) -> Claim:
        row = command(tx, fence.session_id, renewal).row
        assert row is not None
        return row

    try:
        handle.check()
        sent = node.clock.monotonic()
        row = await node.log.store.write(work, lambda row: handle.renewed(sent), label="renewal")
    except (ClaimLost, CommitOutcomeUnknown) as exc:
        handle.lose(str(exc))
        return False
    except StoreError as exc:
        logger.warning("a renewal failed: %s", exc, extra={"session_id": fence.session_id})
        return False
    saw(row)
    return True


async def _look(node: Node, handle: Handle, saw: Callable[[Claim], None]) -> None:
    """Somebody committed something to this session: perhaps an interrupt for us."""
    fence = handle.fence

    def work(tx: Reader) -> Claim | None:
        return tx.claim(fence.session_id)

    try:
        row = await node.log.store.read(work)
    except StoreError:
        return  # the next renewal looks, too
    if row is not None and row.execution_id == fence.execution_id:
        saw(row)
