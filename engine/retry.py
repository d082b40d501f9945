"""When a failed step is tried again: exponential back-off with jitter, the provider's own wish as a floor.

The schedule is the plain "exponential backoff" of many network clients, bounded on every side; budget and
remaining wait are read from the log, so they survive a take-over.
"""

from __future__ import annotations

import math

import attrs

from engine.limits import EngineConfig
from engine.records import ErrorInfo

RETRYABLE_KINDS = frozenset({"rate_limit", "overloaded", "internal", "transport", "incomplete", "unknown"})

WISH_S_MAX = 10**9
"""A longer wish counts as this one, so that its milliseconds are a number, too."""


@attrs.frozen(kw_only=True)
class Failure:
    """Why a step failed, and the least wait the provider asked for, in milliseconds."""

    error: ErrorInfo
    retry_after_ms: int | None = None


def failure(kind: str, message: str, retry_after_s: float | None = None) -> Failure:
    """A provider failure of a `kind` listed at `engine.ports.ProviderError`."""
    error = ErrorInfo(type=kind, message=message or kind, retryable=kind in RETRYABLE_KINDS)
    return Failure(error=error, retry_after_ms=_wish(retry_after_s))


def _wish(retry_after_s: float | None) -> int | None:
    """A usable wish: a finite number that isn't negative; nonsense counts as no wish."""
    if isinstance(retry_after_s, bool) or not isinstance(retry_after_s, int | float):
        return None
    if not 0 <= retry_after_s < math.inf:  # False for nan, too
        return None
    return math.ceil(min(retry_after_s, WISH_S_MAX) * 1000)


def delay_ms(failed: Failure, *, attempt: int, fraction: float, config: EngineConfig) -> int:
    """How long to wait after failed attempt number `attempt` (from 1), in whole milliseconds.

    `retry_base_ms` doubles per attempt, spread by `retry_jitter_percent` (`fraction` from 0 up to 1 picks
    the place in the spread); the provider's wish is a floor, and `retry_after_ms_max` a ceiling over both.
    """
    spread = config.retry_jitter_percent / 100
    backoff = config.retry_base_ms * (1 << min(attempt - 1, 30)) * (1 + spread * (2 * fraction - 1))
    return min(max(round(backoff), failed.retry_after_ms or 0), config.retry_after_ms_max)
