"""When a failed step is tried again."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.limits import EngineConfig
from engine.retry import delay_ms, failure

CONFIG = EngineConfig()
fractions = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(("attempt", "base"), [(1, 2000), (2, 4000), (3, 8000), (4, 16000)])
def test_the_wait_doubles_and_is_spread_by_the_jitter(attempt: int, base: int) -> None:
    """2, 4, 8, 16 seconds, each spread by a fifth to either side."""
    waits = [
        delay_ms(failure("internal", "m"), attempt=attempt, fraction=f, config=CONFIG)
        for f in (0.0, 0.5, 1 - 1e-9)
    ]
    assert waits == [base * 8 // 10, base, base * 12 // 10]


@given(st.integers(1, 200), fractions, st.integers(0, 100), st.integers(1, 10_000), st.integers(1, 10**6))
def test_the_wait_stays_between_its_floor_and_its_ceiling(
    attempt: int, fraction: float, jitter: int, base: int, cap: int
) -> None:
    """Never below the base less its jitter (or the ceiling), never above the ceiling, always whole."""
    config = EngineConfig(retry_base_ms=base, retry_jitter_percent=jitter, retry_after_ms_max=cap)
    wait = delay_ms(failure("internal", "m"), attempt=attempt, fraction=fraction, config=config)
    assert isinstance(wait, int)
    assert min(cap, math.floor(base * (1 - jitter / 100))) <= wait <= cap
    if base * 2 ** (attempt - 1) * (1 + jitter / 100) <= cap:
        assert wait <= math.ceil(base * 2 ** (attempt - 1) * (1 + jitter / 100))


@given(st.floats(0, 1e308) | st.integers(0, 10**400), fractions)
def test_the_providers_wish_is_a_floor_under_the_ceiling(wish: float, fraction: float) -> None:
    """`Retry-After` is waited for, unless it is longer than the ceiling."""
    wait = delay_ms(failure("rate_limit", "m", wish), attempt=1, fraction=fraction, config=CONFIG)
    assert wait <= 900_000
    assert wait >= min(wish, 900) * 1000
    assert wait >= 1600


nonsense: list[Any] = [math.nan, math.inf, -math.inf, -1, -0.5, -(10**400), "30", True, None, [3], 1j]


@pytest.mark.parametrize("wish", nonsense, ids=repr)
def test_a_wish_that_makes_no_sense_is_ignored(wish: Any) -> None:
    """Neither an error nor an endless wait: as if the provider had said nothing."""
    assert failure("rate_limit", "m", wish).retry_after_ms is None


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        ("rate_limit", True), ("overloaded", True), ("internal", True), ("transport", True),
        ("incomplete", True), ("unknown", True), ("auth", False), ("quota", False), ("content_policy", False),
        ("invalid_request", False), ("unsupported", False), ("provider_fault", False), ("surprise", False),
    ],
)  # fmt: skip
def test_only_listed_kinds_are_tried_again(kind: str, retryable: bool) -> None:
    """What can't get better by waiting isn't retried, nor what nobody knows."""
    assert failure(kind, "m").error.retryable is retryable


def test_a_failure_without_words_says_its_kind() -> None:
    """An error in the log is never empty."""
    assert failure("auth", "").error.message == "auth"
