"""Every bound, with its unit last, and the relations between them.

Exceeding a bound is a clear error or a marked truncation, never silence.
"""

from __future__ import annotations

import math

import attrs

from engine.errors import ConfigError

PPM = 1_000_000

JSON_DEPTH_MAX = 128
"""Levels of nesting in a JSON value that may be stored: far below what any reader's stack allows."""

EVENT_REST_BYTES = 4_096
"""Room in an event for ids, names and punctuation, beside the one value of it that may be large."""


def _positive(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{attribute.name} must be a whole number of at least 1, not {value!r}")


def _not_negative(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{attribute.name} must be a whole number of at least 0, not {value!r}")


def _on_unknown(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if value not in ("continue", "stop"):
        raise ConfigError(f"{attribute.name} must be 'continue' or 'stop', not {value!r}")


def _bound(default: int) -> int:
    field: int = attrs.field(default=default, validator=_positive)
    return field


def _bound_or_zero(default: int) -> int:
    field: int = attrs.field(default=default, validator=_not_negative)
    return field


@attrs.frozen(kw_only=True)
class EngineConfig:
    """All the bounds of one engine, validated as a whole.

    Units are the last word of each name: `_ms` milliseconds, `_bytes` bytes of canonical JSON, `_ppm` parts
    per million; `_max` without a unit is a count. Raises `ConfigError` for a bad value or a broken relation.
    """

    # the claim: see `lease_rule`
    lease_ms: int = _bound(30_000)
    clock_skew_ms_max: int = _bound_or_zero(5_000)
    """Width of the band that holds (wall clock - true time) of every node, always."""
    clock_rate_error_ppm: int = _bound_or_zero(200)
    settle_ms_max: int = _bound(5_000)
    write_timeout_ms: int = _bound(5_000)
    """For getting the write lock; a commit itself is never abandoned."""

    # waiting
    listener_ms_max: int = _bound(5_000)
    provider_idle_ms_max: int = _bound(120_000)
    tool_ms_max: int = _bound(3_600_000)
    """How long one call may run; then it is stopped, and its outcome is unknown."""
    tool_grace_ms: int = _bound_or_zero(2_000)
    shutdown_grace_ms: int = _bound_or_zero(5_000)
    interrupt_ms_max: int = _bound(20_000)
    """How long `interrupt` waits for settlement before it answers `requested`."""
    sweep_interval_ms: int = _bound(5_000)
    poll_ms: int = _bound(50)
    """How often the store looks for commits of other processes."""

    # retries
    attempts_max: int = _bound(5)
    retry_base_ms: int = _bound(2_000)
    retry_jitter_percent: int = _bound_or_zero(20)
    retry_after_ms_max: int = _bound(900_000)
    takeovers_max: int = _bound(10)

    # counts
    steps_max: int = _bound(50)
    sessions_running_max: int = _bound(256)
    tools_per_node_max: int = _bound(64)
    tools_per_session_max: int = _bound(16)
    inbox_pending_max: int = _bound(1_000)
    steers_per_promotion_max: int = _bound(100)
    page_events_max: int = _bound(256)
    batch_works_max: int = _bound(256)
    live_buffer_max: int = _bound(1_024)
    provider_buffer_max: int = _bound(64)

    # sizes
    event_bytes_max: int = _bound(1_048_576)
    fragment_bytes_max: int = _bound(524_288)
    tool_output_bytes_max: int = _bound(262_144)
    input_bytes_max: int = _bound(524_288)
    error_bytes_max: int = _bound(16_384)
    """Of an error's message that a provider worded; the rest of a longer one is cut."""
    name_bytes_max: int = _bound(512)
    """Of a tool's name, a call's id, a reason: a longer one is a fault of the provider."""

    on_unknown: str = attrs.field(default="continue", validator=_on_unknown)
    """What follows a step whose outcome is unknown: go on with a note, or fail the execution."""

    def __attrs_post_init__(self) -> None:
        broken = lease_rule(self)
        if broken is not None:
            raise ConfigError(broken)
        for name in ("fragment_bytes_max", "tool_output_bytes_max", "input_bytes_max", "error_bytes_max"):
            if getattr(self, name) + EVENT_REST_BYTES > self.event_bytes_max:
                raise ConfigError(
                    f"{name} ({getattr(self, name)}) + {EVENT_REST_BYTES} for the rest of the event must be"
                    f" at most event_bytes_max ({self.event_bytes_max}), or the event would never fit"
                )
        if self.name_bytes_max > EVENT_REST_BYTES // 4:
            raise ConfigError(
                f"name_bytes_max must be at most {EVENT_REST_BYTES // 4}, not {self.name_bytes_max}"
            )
        if self.interrupt_ms_max <= self.write_timeout_ms:
            raise ConfigError(
                f"interrupt_ms_max ({self.interrupt_ms_max}) must exceed write_timeout_ms"
                f" ({self.write_timeout_ms}), or an interrupt could be answered before it was asked"
            )
        if self.retry_jitter_percent > 100:
            raise ConfigError(f"retry_jitter_percent must be at most 100, not {self.retry_jitter_percent}")

    @property
    def renew_interval_ms(self) -> float:
        """A third of the lease, in milliseconds."""
        return self.lease_ms / 3

    @property
    def margin_ms(self) -> int:
        """How long before the lease's end its holder stops by itself, in whole milliseconds, rounded up."""
        drift = math.ceil(self.lease_ms * self.clock_rate_error_ppm / PPM)
        return self.clock_skew_ms_max + drift + self.settle_ms_max


def lease_rule(config: EngineConfig) -> str | None:
    """What is wrong with the lease, as the sum that breaks it; None if nothing is.

    `lease_ms > renew_interval_ms + margin_ms + write_timeout_ms`: between two renewals that both arrive,
    with the second as late as the store allows, the holder must still stop before anyone may take over.
    """
    renew = config.renew_interval_ms
    needed = renew + config.margin_ms + config.write_timeout_ms
    if config.lease_ms > needed:
        return None
    drift = config.margin_ms - config.clock_skew_ms_max - config.settle_ms_max
    return (
        f"lease_ms ({config.lease_ms}) must exceed renew_interval_ms ({renew:.1f})"
        f" + margin_ms ({config.margin_ms}) + write_timeout_ms ({config.write_timeout_ms}) = {needed:.1f},"
        f" where margin_ms is clock_skew_ms_max ({config.clock_skew_ms_max})"
        f" + lease_ms x clock_rate_error ({drift}) + settle_ms_max ({config.settle_ms_max});"
        f" lengthen the lease or tighten the bounds"
    )
