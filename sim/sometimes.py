"""Rare states a campaign must have reached: an empty campaign may not look like a clean one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine import events as ev
from engine.records import Phase
from sim.record import Record


def _took_over(record: Record, phase: Phase) -> bool:
    return any(
        seen.before is not None
        and seen.after is not None
        and seen.before.execution_id != seen.after.execution_id
        and seen.before.phase is phase
        for commit in record.commits
        for seen in commit.claims
    )


def _wrote(record: Record, *types: type[ev.Event], **fields: object) -> bool:
    return any(
        isinstance(item.event, types)
        and all(getattr(item.event, name) == value for name, value in fields.items())
        for happened in record.happened.values()
        for item in happened
    )


def _answered(record: Record, answer: str) -> bool:
    return any(one.answer == answer for one in record.run.ledger.interrupts)


def _struck(record: Record, kind: str) -> bool:
    return any(one.kind == kind for one in record.run.ledger.faults)


def _interrupted_elsewhere(record: Record) -> bool:
    """A node asked for an interrupt of a claim that another node's execution held."""
    return any(
        seen.before is not None
        and seen.after is not None
        and seen.before.interrupt_seq is None
        and seen.after.interrupt_seq is not None
        and f"_{commit.node}_" not in seen.after.execution_id
        for commit in record.commits
        for seen in commit.claims
    )


def _window(window: str) -> Callable[[Record], bool]:
    return lambda record: any(window in found for found in record.run.ledger.windows.values())


SOMETIMES: Mapping[str, Callable[[Record], bool]] = {
    "a claim was taken over in phase ready": lambda r: _took_over(r, Phase.READY),
    "a claim was taken over in phase unknown": lambda r: _took_over(r, Phase.UNKNOWN),
    "a claim was taken over in phase continue": lambda r: _took_over(r, Phase.CONTINUE),
    "a claim was taken over in phase cancelling": lambda r: _took_over(r, Phase.CANCELLING),
    "a claim was taken over in phase cancelled": lambda r: _took_over(r, Phase.CANCELLED),
    "an outcome was settled as unknown": lambda r: _wrote(r, ev.StepInterrupted, cause="unknown"),
    "a step was settled by a shutdown": lambda r: _wrote(r, ev.StepInterrupted, cause="shutdown"),
    "a step was interrupted by a user": lambda r: _wrote(r, ev.StepInterrupted, cause="user"),
    "an execution was handed over": lambda r: _wrote(r, ev.ExecutionHandedOver),
    "an execution failed": lambda r: _wrote(r, ev.ExecutionFailed),
    "a retry was scheduled": lambda r: _wrote(r, ev.RetryScheduled),
    "a tool's outcome stayed unknown": lambda r: _wrote(r, ev.ToolFailed, outcome="unknown"),
    "a call was never run": lambda r: _wrote(r, ev.ToolFailed, outcome="not_run"),
    "a fragment was cut": lambda r: _wrote(r, ev.TextEnded, truncated=True),
    "input was parked by an interrupt that found nobody": lambda r: _wrote(r, ev.InputParked),
    "parked input was resumed": lambda r: _wrote(r, ev.InputResumed),
    "an interrupt was answered settled": lambda r: _answered(r, "settled"),
    "an interrupt was answered not_running": lambda r: _answered(r, "not_running"),
    "an interrupt was answered already_settling": lambda r: _answered(r, "already_settling"),
    "an interrupt was answered requested": lambda r: _answered(r, "requested"),
    "an interrupt was asked of another node": _interrupted_elsewhere,
    "a write was refused because its claim was lost": lambda r: r.refused("ClaimLost", None) > 0,
    "a write was refused because of an interrupt": lambda r: r.refused("ClaimCancelling", None) > 0,
    "a COMMIT's outcome couldn't be told": lambda r: any(one.applied for one in r.run.ledger.faults),
    "the store failed": lambda r: _struck(r, "store_error"),
    "a node lost its power": lambda r: _struck(r, "power_cut"),
    "a node stalled": lambda r: _struck(r, "stall"),
    "a node was suspended": lambda r: _struck(r, "suspend"),
    "a listener was being told": _window("notify"),
}
"""What each mark says of a run, and how it is seen there."""


def marks(record: Record) -> list[str]:
    """The marks that a run reached."""
    return [name for name, reached in SOMETIMES.items() if reached(record)]
