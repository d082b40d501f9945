"""What befell a node, in plain words: each kind of fault as a clause of a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sim.ledger import FaultApplied
from sim.record import Record
from sim.words.naming import seconds

CLOCK_ERROR_MS = 100
"""A clock that is wrong by less isn't worth a word."""

NEXT_MOMENT_MS = 0.001
"""So much later a clock that was stepped shows it."""

DAY_MS = 24 * 60 * 60 * 1_000

LASTING: Mapping[str, str] = {
    "stall": "stalled",
    "take_over": "stood still",
    "suspend": "was suspended",
    "slow": "was slow",
}
"""Faults that last: what the node did meanwhile."""

AT_ONCE: Mapping[str, str] = {
    "cancel": "was cancelled",
    "power_cut": "lost its power",
}
"""Faults that end a node: what befell it."""

OF_THE_MACHINE: Mapping[str, str] = {
    "power_loss": "the machine lost its power",
    "disk_error": "the disk failed",
    "disk_full": "the disk was full",
    "sync_lies": "the disk lied about its syncs",
    "slow_disk": "the disk was slow",
}
"""Faults that befall all nodes, as they share a machine."""

TIMES = {2: "twice"}

ON_CLOCKS = ("clock_step", "clock_slew", "monotonic_rate")


def befell(record: Record, fault: FaultApplied, end_ms: float) -> str:
    """A fault as a clause, as far as it had come at `end_ms` of true time."""
    since = fault.moment.true_ms
    if fault.kind == "disk_error":
        return _failed(record, fault, end_ms)
    if fault.kind in OF_THE_MACHINE:
        lasted = "" if fault.kind == "power_loss" else _lasted(fault, end_ms)
        return f"{OF_THE_MACHINE[fault.kind]}{lasted or f' at {seconds(since)}'}"
    if fault.kind in LASTING:
        return f"{fault.node} {LASTING[fault.kind]}{_lasted(fault, end_ms)}"
    if fault.kind in ON_CLOCKS:
        return _moved(record, fault, end_ms)
    if fault.kind == "store_error":
        hidden = " and hid that it had committed" if fault.applied else ""
        return f"{fault.node}'s store failed{hidden} at {seconds(since)}"
    return f"{fault.node} {AT_ONCE.get(fault.kind, f'met a fault ({fault.kind})')} at {seconds(since)}"


def _failed(record: Record, fault: FaultApplied, end_ms: float) -> str:
    """`the disk's sync failed twice from 3.1 s on`: as often as it had by `end_ms`."""
    since = fault.moment.true_ms
    met = [
        entry.fields["operation"]
        for entry in record.run.trace.entries
        if entry.kind == "disk" and "operation" in entry.fields and entry.fields["name"] == fault.name
        if entry.true_ms <= end_ms
    ]
    whose = f"the disk's {met[0]}" if met else "the disk"
    if len(met) < 2:
        return f"{whose} failed at {seconds(since)}"
    return f"{whose} failed {TIMES.get(len(met), f'{len(met)} times')} from {seconds(since)} on"


def _lasted(fault: FaultApplied, end_ms: float) -> str:
    since, until = fault.moment.true_ms, math.inf if fault.until_ms is None else fault.until_ms
    lasted = "" if until > end_ms else f" {seconds(until - since)}"
    return f"{lasted} from {seconds(since)} on"


def _moved(record: Record, fault: FaultApplied, end_ms: float) -> str:
    """A clock that was set, slewed, or changed its rate."""
    since = fault.moment.true_ms
    if fault.kind == "monotonic_rate":
        return f"{fault.node}'s monotonic clock changed its rate at {seconds(since)}"
    slewed = fault.kind == "clock_slew"
    until = min(end_ms, since if fault.until_ms is None else fault.until_ms) if slewed else since
    shown = record.clocks_at(until + NEXT_MOMENT_MS).get(fault.node, 0)
    by_ms = round(shown - until - (fault.moment.clocks.get(fault.node, 0) - since))
    if slewed:
        far = "slewed" if abs(by_ms) < CLOCK_ERROR_MS else f"slewed {way(by_ms)}"
        return f"{fault.node}'s clock was {far}{_lasted(fault, end_ms)}"
    return jumped(fault.node, by_ms, since)


def jumped(node: str, by_ms: int, at_ms: float) -> str:
    """A wall clock that was set."""
    return (
        f"{node}'s clock jumped {'ahead' if by_ms >= 0 else 'back'} {seconds(abs(by_ms))} at {seconds(at_ms)}"
    )


def way(by_ms: float) -> str:
    """`6.0 s behind`, `0.9 s ahead`, or `right` where it isn't worth a word."""
    if abs(by_ms) < CLOCK_ERROR_MS:
        return "right"
    far = abs(by_ms) >= 2 * DAY_MS
    distance = f"{abs(by_ms) / DAY_MS:.0f} days" if far else seconds(abs(by_ms))
    return f"{distance} {'behind' if by_ms < 0 else 'ahead'}"
