"""The handle of a claim this node holds: its deadline, and the latch that keeps a lost claim lost.

While the process runs and its monotonic clock ticks, the holder stops by itself before anyone may take over;
after a suspend only the fence in the database holds, and that is enough for safety.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.claims import EXPIRED_AT_ONCE
from engine.errors import ClaimLost
from engine.limits import EngineConfig
from engine.ports import Clock, Scope
from engine.records import Claim, Fence


class Handle:
    """One execution's hold on its session.

    Check it before every fenced write, every request and every tool start. The check latches: once the
    deadline passed or the claim was lost, the handle is dead for good, even if a clock steps back.
    """

    def __init__(self, fence: Fence, config: EngineConfig, clock: Clock, *, sent: float) -> None:
        self.fence = fence
        self.over = False  #: cleared, handed over or expired by ourselves: nothing more is written
        self.lost: str | None = None
        self.on_lost: Callable[[], None] = lambda: None
        self._config = config
        self._clock = clock
        self._scopes: list[Scope] = []
        self._settle_deadline: float | None = None
        self.sent = sent  #: when the latest fenced write that succeeded was queued, on the monotonic clock
        self.deadline = self._after(sent)

    def _after(self, sent: float) -> float:
        return sent + (self._config.lease_ms - self._config.margin_ms) / 1000

    def watch(self, scope: Scope) -> None:
        """Move `scope`'s deadline along with the lease."""
        self._scopes.append(scope)

    def renewed(self, sent: float) -> None:
        """A fenced write succeeded that was queued when the monotonic clock read `sent`."""
        self.sent = max(self.sent, sent)
        self.deadline = max(self.deadline, self._after(sent))
        for scope in self._scopes:
            scope.extend(self.deadline)

    def lose(self, reason: str) -> None:
        """Latch the loss; the first reason stands."""
        if self.lost is None and not self.over:
            self.lost = reason
            self.on_lost()

    def begin_settlement(self) -> None:
        """From now on settling writes have `settle_ms_max`, which is inside the margin. Raises `ClaimLost`
        if the deadline has passed: no settlement begins after it."""
        self.check()
        self._settle_deadline = self._clock.monotonic() + self._config.settle_ms_max / 1000

    def check(self) -> None:
        """Raise `ClaimLost` unless the claim is ours to use now."""
        now = self._clock.monotonic()
        allowed = max(self.deadline, self._settle_deadline or self.deadline)
        if self.lost is None and now >= allowed:
            self.lose(f"its own deadline passed {now - allowed:.3f} s ago without a renewal")
        if self.over:
            raise ClaimLost(f"execution {self.fence.execution_id} of {self.fence.session_id} is over")
        if self.lost is not None:
            raise ClaimLost(
                f"execution {self.fence.execution_id} of {self.fence.session_id} lost its claim: {self.lost}"
            )

    def follow(self, row: Claim | None) -> None:
        """Take note of the row after one of our own commits: gone or freed means that it is over."""
        if row is None or row.execution_id != self.fence.execution_id or row.expires_at <= EXPIRED_AT_ONCE:
            self.over = True
