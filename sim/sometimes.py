"""Rare states a campaign must have reached: an empty campaign may not look like a clean one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine import events as ev
from engine.claims import EXPIRED_AT_ONCE
from engine.errors import CommitOutcomeUnknown
from engine.records import Phase
from sim.record import Record
from sim.scenario import DISK_KINDS


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


def _slept_awake(record: Record) -> bool:
    return _struck(record, "suspend") and any(
        fault.kind == "suspend" and fault.monotonic_stops is False for fault in record.run.scenario.faults
    )


def _booted_wrong(record: Record) -> bool:
    return any(spec.clock.boot_offset_ms for spec in record.run.scenario.nodes)


def _dated_ahead(record: Record) -> bool:
    """A claim was taken up by a clock that didn't show its end yet: it was watched for long enough."""
    return any(
        seen.before is not None
        and seen.after is not None
        and seen.before.execution_id != seen.after.execution_id
        and seen.before.expires_at > max(commit.now_ms, EXPIRED_AT_ONCE)
        for commit in record.commits
        for seen in commit.claims
    )


def _struck_all(record: Record) -> bool:
    """One fault struck several nodes at one moment, as those of the machine always do."""
    faults = [one for one in record.run.ledger.faults if one.kind not in DISK_KINDS]
    struck = {(one.name, one.moment.entry, one.node) for one in faults}
    return len({(name, entry) for name, entry, _ in struck}) < len(struck)


def _struck_again(record: Record) -> bool:
    """One fault struck a node at two moments."""
    faults = record.run.ledger.faults
    struck = {(one.name, one.node, one.moment.entry) for one in faults}
    return len({(name, node) for name, node, _ in struck}) < len(struck)


def _runs_as_another(record: Record) -> bool:
    return any(node.owner != node.spec.owner for node in record.run.nodes.values())


def _failed_as(cls: type[ev.StepFailed | ev.ToolFailed], kind: str) -> Callable[[Record], bool]:
    """A step or a tool failed with an error of that type."""
    return lambda record: any(
        isinstance(item.event, cls) and item.event.error.type == kind
        for happened in record.happened.values()
        for item in happened
    )


def _asked_by_a_tool(record: Record) -> bool:
    asking = {spec.name for spec in record.run.scenario.tools if spec.asks is not None}
    return any(start.tool in asking for start in record.run.ledger.tools)


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


def _disk(said: str) -> Callable[[Record], bool]:
    """The disk did this to an operation, in the words of the trace."""
    return lambda record: any(
        entry.kind == "disk" and entry.label == said for entry in record.run.trace.entries
    )


def _lost(record: Record) -> bool:
    """A loss of power took a commit that was under way: the trace has that one after the loss."""
    losses = record.run.database.history.losses
    return any(commit.entry >= loss.moment.entry for loss in losses for commit in loss.lost)


def _survived(record: Record) -> bool:
    return any(loss.survived for loss in record.run.database.history.losses)


def _untold(record: Record) -> bool:
    """A COMMIT failed, and neither a fault of the store nor a loss of power made its outcome unknown."""
    losses = record.run.database.history.losses
    dark = {commit.entry for loss in losses for commit in (*loss.lost, *loss.survived)}
    return any(
        entry.kind == "refused"
        and isinstance(entry.fields["error"], CommitOutcomeUnknown)
        and entry.index not in dark
        for entry in record.run.trace.entries
    )


def _refused(where: str) -> Callable[[Record], bool]:
    """A statement of a batch was refused there, as the driver of the simulated database says it."""
    return lambda record: any(
        entry.kind == "refused" and str(entry.fields["error"]).endswith(f" at {where}")
        for entry in record.run.trace.entries
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
    "a machine slept while its monotonic clock went on": _slept_awake,
    "a node was slow": lambda r: _struck(r, "slow"),
    "a clock was slewed": lambda r: _struck(r, "clock_slew"),
    "a monotonic clock ran at another rate": lambda r: _struck(r, "monotonic_rate"),
    "a machine booted with a wrong clock": _booted_wrong,
    "a claim dated ahead was taken up": _dated_ahead,
    "all nodes were struck at one moment": _struck_all,
    "a fault struck again": _struck_again,
    "a node runs under another's owner id": _runs_as_another,
    "a provider broke the rules of its port": _failed_as(ev.StepFailed, "provider_fault"),
    "a stream ended without a finish": _failed_as(ev.StepFailed, "incomplete"),
    "a tool's result couldn't be stored": _failed_as(ev.ToolFailed, "invalid-output"),
    "a tool's result was cut": lambda r: _wrote(r, ev.ToolSucceeded, truncated=True),
    "a tool asked its own engine": _asked_by_a_tool,
    "input was cancelled": lambda r: _wrote(r, ev.InputCancelled),
    "a session was deleted": lambda r: _wrote(r, ev.SessionDeletedEvent),
    "a log was damaged": lambda r: any("poison" in name or name == "damage" for name in r.run.ledger.fired),
    "eight nodes ran": lambda r: len(r.run.nodes) == 8,
    "a transaction couldn't begin": _refused("begin"),
    "a statement failed in the middle of a work": _refused("work"),
    "the machine lost its power": lambda r: _struck(r, "power_loss"),
    "the machine lost its power in a COMMIT": lambda r: _lost(r) or _survived(r),
    "a commit was lost with the power": _lost,
    "an unacknowledged commit survived the loss of power": _survived,
    "a read of the disk failed": _disk("a read failed"),
    "a write of the disk failed": _disk("a write failed"),
    "a sync of the disk failed": _disk("a sync failed"),
    "a sync of the disk lied": lambda r: _struck(r, "sync_lies"),
    "a COMMIT failed on the disk, and its outcome couldn't be told": _untold,
    "the disk was full": lambda r: _struck(r, "disk_full"),
    "the disk was slow": lambda r: _struck(r, "slow_disk"),
    "a listener was being told": _window("notify"),
}
"""What each mark says of a run, and how it is seen there."""


def marks(record: Record) -> list[str]:
    """The marks that a run reached."""
    return [name for name, reached in SOMETIMES.items() if reached(record)]
