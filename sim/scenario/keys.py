"""Which keys go with which word of a file: an action's `do`, a fault's `kind`, a listener's `does`."""

from __future__ import annotations

from collections.abc import Mapping

from sim.scenario.disk import DISK_FAULT_KEYS, TAKEN_BY_DISK_FAULTS

OPTIONAL, REQUIRED = "optional", "required"

#: which keys an action takes besides `as`, `do`, `node`, `at_s`, `when`
ACTION_KEYS: Mapping[str, Mapping[str, str]] = {
    "send": {"session": REQUIRED, "text": REQUIRED, "delivery": OPTIONAL, "input": OPTIONAL},
    "interrupt": {"session": REQUIRED},
    "resume": {"session": REQUIRED},
    "wake": {"session": REQUIRED},
    "cancel_input": {"session": REQUIRED, "input": REQUIRED},
    "delete": {"session": REQUIRED},
    "release": {"session": REQUIRED},
    "discard": {"session": REQUIRED},
    "poison": {"session": REQUIRED},
    "shutdown": {},
    "start": {"owner": OPTIONAL},
}

#: the keys of a fault that may strike again and again
AGAIN: Mapping[str, str] = {"times": OPTIONAL, "again_after_s": OPTIONAL}

#: the kinds that may strike all nodes at one moment
ALL_AT_ONCE = (
    *("cancel", "power_cut", "stall", "slow", "suspend"),
    *("clock_step", "clock_slew", "monotonic_rate"),
)

#: the kinds that last for `for_s`, which is more than nothing
LASTING = ("stall", "slow", "suspend", "clock_slew")

#: which keys a fault takes besides `as`, `kind`, `node`, `at_s`, `when`
FAULT_KEYS: Mapping[str, Mapping[str, str]] = {
    "cancel": {"for_s": OPTIONAL, "owner": OPTIONAL, **AGAIN},
    "power_cut": {"for_s": OPTIONAL, "owner": OPTIONAL, **AGAIN},
    "stall": {"for_s": REQUIRED, **AGAIN},
    "slow": {"for_s": REQUIRED, "gate_ms": REQUIRED, **AGAIN},
    "suspend": {"for_s": REQUIRED, "monotonic_stops": OPTIONAL, **AGAIN},
    "take_over": {"session": OPTIONAL, **AGAIN},
    "clock_step": {"by_ms": REQUIRED, **AGAIN},
    "clock_slew": {"by_ms": REQUIRED, "for_s": REQUIRED, **AGAIN},
    "monotonic_rate": {"ppm": REQUIRED, "for_s": OPTIONAL, **AGAIN},
    "store_error": dict.fromkeys(("error", "batches", "applied", "inside", "statement"), OPTIONAL),
    **DISK_FAULT_KEYS,
}

#: which keys a listener takes besides `node`, `event`, `nth`, `does`
LISTENER_KEYS: Mapping[str, Mapping[str, str]] = {
    "raises": {},
    "hangs": {},
    "sleeps": {"for_ms": REQUIRED},
    "cancelled": {},
}

TAKEN_BY_SOME = (
    *("session", "text", "delivery", "input", "for_s", "for_ms", "by_ms"),
    *("error", "batches", "applied", "inside", "statement"),
    *TAKEN_BY_DISK_FAULTS,
    *("ppm", "monotonic_stops", "gate_ms", "owner", "times", "again_after_s"),
)
