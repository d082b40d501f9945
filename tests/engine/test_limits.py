"""The bounds of an engine and the relations between them."""

from __future__ import annotations

import math
import re
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConfigError
from engine.limits import EVENT_REST_BYTES, EngineConfig, lease_rule

FIELDS = [field.name for field in attrs.fields(EngineConfig) if field.name != "on_unknown"]
MAY_BE_ZERO = {
    "clock_skew_ms_max",
    "clock_rate_error_ppm",
    "tool_grace_ms",
    "shutdown_grace_ms",
    "retry_jitter_percent",
}


def test_the_defaults_hold() -> None:
    """Thirty seconds of lease, a renewal every ten, and a margin for skew, drift and settlement."""
    config = EngineConfig()
    assert (config.lease_ms, config.renew_interval_ms, config.margin_ms) == (30_000, 10_000, 10_006)
    assert lease_rule(config) is None


def test_the_lease_rule_shows_its_sum() -> None:
    """A broken lease is refused with every number that went into it, and the numbers add up."""
    with pytest.raises(ConfigError) as caught:
        EngineConfig(lease_ms=22_000, clock_skew_ms_max=6_000, clock_rate_error_ppm=500)
    text = str(caught.value)
    assert text.startswith("lease_ms (22000) must exceed renew_interval_ms (7333.3) + margin_ms (11011)")
    numbers = [float(n) for n in re.findall(r"\((\d+(?:\.\d)?)\)", text)]
    lease, renew, margin, write, skew, drift, settle = numbers
    needed = float(re.findall(r"= (\d+\.\d),", text)[0])
    assert lease <= needed
    assert margin == skew + drift + settle
    assert math.isclose(needed, renew + margin + write, abs_tol=0.1)


def test_a_lease_that_is_exactly_used_up_is_too_short() -> None:
    """Somebody else may take over at the very instant at which the lease ends."""
    fits: dict[str, Any] = {"clock_skew_ms_max": 5_000, "clock_rate_error_ppm": 0, "settle_ms_max": 5_000}
    assert EngineConfig(lease_ms=30_000, write_timeout_ms=9_999, **fits)
    with pytest.raises(ConfigError, match=r"= 30000\.0"):
        EngineConfig(lease_ms=30_000, write_timeout_ms=10_000, **fits)


@given(
    st.integers(1, 10**8),
    st.integers(0, 10**7),
    st.integers(0, 10**5),
    st.integers(1, 10**6),
    st.integers(1, 10**6),
)
def test_the_lease_rule_is_the_inequality(lease: int, skew: int, ppm: int, settle: int, write: int) -> None:
    """Accepted exactly if the lease exceeds a renewal, the margin and the write timeout together."""
    margin = skew + math.ceil(lease * ppm / 1_000_000) + settle
    given_values: dict[str, Any] = {
        "lease_ms": lease, "clock_skew_ms_max": skew, "clock_rate_error_ppm": ppm, "settle_ms_max": settle,
        "write_timeout_ms": write,
        "interrupt_ms_max": write + 1,
    }  # fmt: skip
    if lease > lease / 3 + margin + write:
        config = EngineConfig(**given_values)
        assert config.lease_ms > config.clock_skew_ms_max + config.renew_interval_ms
    else:
        with pytest.raises(ConfigError, match="must exceed"):
            EngineConfig(**given_values)


@pytest.mark.parametrize("name", FIELDS)
def test_every_bound_is_checked_by_name(name: str) -> None:
    """A bound is a whole number; most are at least 1, and the error names the one that isn't."""
    bad: list[Any] = [-1, 1.5, "3", None, True, *([] if name in MAY_BE_ZERO else [0])]
    for value in bad:
        with pytest.raises(ConfigError, match=name):
            EngineConfig(**{name: value})


def test_what_follows_an_unknown_outcome_is_one_of_two() -> None:
    """A wrong word is a `ConfigError` like any other."""
    assert EngineConfig(on_unknown="stop").on_unknown == "stop"
    with pytest.raises(ConfigError, match="on_unknown must be 'continue' or 'stop', not 'halt'"):
        EngineConfig(on_unknown="halt")


@pytest.mark.parametrize(
    "name", ["fragment_bytes_max", "tool_output_bytes_max", "input_bytes_max", "error_bytes_max"]
)
def test_whatever_an_event_carries_fits_into_it(name: str) -> None:
    """A bound so near to `event_bytes_max` that ids and names don't fit beside it is refused."""
    limit: Any = EngineConfig().event_bytes_max - EVENT_REST_BYTES
    assert EngineConfig(**{name: limit})
    with pytest.raises(ConfigError, match=rf"{name} \({limit + 1}\) \+ 4096"):
        EngineConfig(**{name: limit + 1})


def test_names_fit_into_the_room_for_them() -> None:
    """A call's id and its tool's name stand in one event."""
    assert EngineConfig(name_bytes_max=1024)
    with pytest.raises(ConfigError, match="name_bytes_max must be at most 1024"):
        EngineConfig(name_bytes_max=1025)


def test_jitter_is_a_share() -> None:
    """More than all of a wait can't be taken off it."""
    assert EngineConfig(retry_jitter_percent=100)
    with pytest.raises(ConfigError, match="retry_jitter_percent"):
        EngineConfig(retry_jitter_percent=101)


def test_names_end_in_their_unit() -> None:
    """Units are the last word, or the last before `_max`."""
    pattern = r".*_(ms|bytes|ppm|percent)(_max)?$|.*_max$"
    assert [name for name in FIELDS if not re.match(pattern, name)] == []


def test_an_interrupt_waits_longer_than_a_write() -> None:
    """An interrupt's bound must exceed a write's, or it could be answered before it was asked."""
    with pytest.raises(ConfigError, match="before it was asked"):
        EngineConfig(interrupt_ms_max=5_000, write_timeout_ms=5_000)
