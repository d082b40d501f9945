"""Faults of the disk for worlds made from a tape: every choice is a draw, 0 the plainest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, get_args

from sim.scenario import Disk, Fault, OnDisk, OnGate
from sim.scenario.disk import DiskOperation, FailingOperation
from sim.tape import Tape

T = TypeVar("T")

FAULTS_MAX = 3
GATES = 220
NTH_MAX, NTH_OF_EVENT_MAX = 12, 4
EVENTS = (
    None,
    "step.started",
    "text.started",
    "tool.called",
    "step.ended",
    "text.ended",
    "execution.started",
)
KINDS = ("power_loss", "disk_error", "disk_full", "slow_disk", "sync_lies")


def disk_faults(
    tape: Tape, *, sync_lies: bool = True, faults_max: int = FAULTS_MAX
) -> tuple[Disk, tuple[Fault, ...]]:
    """A disk and what goes wrong with it, at least one thing. Without `sync_lies` every sync is honest, so
    that nothing which was acknowledged may be lost."""
    disk = Disk(checkpoint_pages=pick(tape, "checkpoint", (1000, 20, 60)))
    return disk, machine_faults(tape, sync_lies=sync_lies, faults_max=faults_max)


def machine_faults(tape: Tape, *, sync_lies: bool = True, faults_max: int = FAULTS_MAX) -> tuple[Fault, ...]:
    """The same without the disk, for a world that has one: at least one fault."""
    draws = _Draws(tape, KINDS if sync_lies else KINDS[:-1])
    count = 1 + tape.draw("faults", "number of disk faults", faults_max)
    return tuple(draws.fault() for _ in range(count))


def pick(tape: Tape, label: str, options: Sequence[T]) -> T:
    """One of some options, the first for 0."""
    return options[tape.draw("faults", f"disk {label}", len(options))]


class _Draws:
    def __init__(self, tape: Tape, kinds: Sequence[str]) -> None:
        self._tape = tape
        self._kinds = kinds

    def pick(self, label: str, options: Sequence[T]) -> T:
        return pick(self._tape, label, options)

    def fault(self) -> Fault:
        kind, when = self.pick("fault", self._kinds), self.moment()
        match kind:
            case "power_loss":
                return Fault(kind="power_loss", for_s=self.pick("back in", (1.0, 5.0, 20.0, 45.0)), **when)
            case "disk_error":
                operations: Sequence[FailingOperation] = get_args(FailingOperation)
                operation = self.pick("operation", operations)
                number = self.pick("operations", (1, 2, 5))
                return Fault(kind="disk_error", operation=operation, operations=number, **when)
            case "disk_full":
                return Fault(kind="disk_full", for_s=self.pick("full for", (1.0, 8.0, 30.0)), **when)
            case "slow_disk":
                commit_ms, for_s = (
                    self.pick("commit", (200, 5_000, 31_000)),
                    self.pick("slow for", (5.0, 40.0)),
                )
                return Fault(kind="slow_disk", commit_ms=commit_ms, for_s=for_s, **when)
            case _:
                return Fault(kind="sync_lies", for_s=self.pick("lies for", (5.0, 40.0)), **when)

    def moment(self) -> dict[str, Any]:
        match self._tape.draw("faults", "disk moment", 3):
            case 0:
                return {"at_s": self.pick("seconds", (0.0, 0.1, 0.5, 1.0, 3.0, 8.0, 15.0, 25.0, 40.0))}
            case 1:
                return {"when": OnGate(gate=1 + self._tape.draw("faults", "disk gate", GATES))}
            case _:
                return {"when": self.operation()}

    def operation(self) -> OnDisk:
        """One operation of the disk; a commit of one type of event has but few of them."""
        operations: Sequence[DiskOperation] = get_args(DiskOperation)
        operation, event = self.pick("trigger", operations), self.pick("event", EVENTS)
        most = NTH_MAX if event is None else NTH_OF_EVENT_MAX
        nth = 1 + self._tape.draw("faults", "disk nth", most)
        return OnDisk(disk=operation, nth=nth, side=self.pick("side", ("before", "after")), event=event)
