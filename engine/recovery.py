"""The sweep: finds sessions that nobody executes though somebody should, and rings their slots.

It only rings; acquiring and taking over stay with the coordinator. It skips only what is busy in this very
process: an expired claim of this node's own is for recovery like any other.
"""

from __future__ import annotations

import logging

import attrs
import trio

from engine.claims import Watched
from engine.coordinator import Coordinator
from engine.errors import StoreError
from engine.node import Node
from engine.ports import Reader
from engine.records import Claim

logger = logging.getLogger("fencepost.recovery")

FOUND_MAX = 1_000
"""Rows of one kind that one sweep looks at; the next sweep sees what this one left."""


@attrs.frozen(kw_only=True)
class _Seen:
    """A live claim as it was first seen at this version, and when, on our monotonic clock."""

    watched: Watched
    since: float


@attrs.frozen(kw_only=True)
class _Findings:
    due: list[Claim]
    live: list[Claim]
    waiting: list[str]


class Recovery:
    """The sweep of one node."""

    def __init__(self, node: Node, coordinator: Coordinator) -> None:
        self._node = node
        self._coordinator = coordinator
        self._seen: dict[str, _Seen] = {}

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Sweep at once, then at every interval, spread by a tenth so that nodes don't march in step."""
        await self._node.clock.checkpoint()
        interval = self._node.config.sweep_interval_ms / 1000
        while True:
            try:
                await self.sweep()
            except StoreError as exc:
                logger.warning("a sweep failed; the next one tries again: %s", exc)
            except Exception:  # whatever one session's rows hold must not end the recovery of all
                logger.exception("a sweep met a defect; the next one tries again")
            await self._node.clock.sleep(interval * (0.9 + 0.2 * self._node.system.chance.fraction()))

    async def sweep(self) -> None:
        """Ring for every claim that is due, every claim watched for long enough, and every session with input
        that waits without a claim."""
        now = self._node.clock.now_ms()
        found = await self._node.log.store.read(lambda tx: _look(tx, now))
        for claim in found.due:
            self._ring(claim.session_id, None)
        self._watch(found.live)
        for session_id in found.waiting:
            self._ring(session_id, None)

    def _ring(self, session_id: str, watched: Watched | None) -> None:
        if self._coordinator.slot(session_id) is None:
            self._coordinator.wake(session_id, watched)

    def _watch(self, live: list[Claim]) -> None:
        """A clock that once jumped ahead may have dated a claim far away. Whoever saw its version unchanged
        for a whole lease plus the maximum skew, on its own monotonic clock, may take it up."""
        config, now = self._node.config, self._node.clock.monotonic()
        enough = (config.lease_ms + config.clock_skew_ms_max) / 1000
        seen: dict[str, _Seen] = {}
        for claim in live:
            watched = Watched(execution_id=claim.execution_id, version=claim.version)
            before = self._seen.get(claim.session_id)
            if before is None or before.watched != watched:
                before = _Seen(watched=watched, since=now)
            seen[claim.session_id] = before
            if now - before.since >= enough:
                self._ring(claim.session_id, watched)
        self._seen = seen


def _look(tx: Reader, now_ms: int) -> _Findings:
    due = tx.claims_due(now_ms, FOUND_MAX)
    dead = {claim.session_id for claim in due}
    return _Findings(
        due=due,
        live=[claim for claim in tx.claims("", FOUND_MAX) if claim.session_id not in dead],
        waiting=[*tx.sessions_waiting(FOUND_MAX), *tx.released(FOUND_MAX)],
    )
