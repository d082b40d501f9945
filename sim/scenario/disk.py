"""What a scenario file says about the simulated disk: the `[disk]` table, the trigger at one of its
operations, and which keys the faults of the machine take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from engine.shape import show
from sim.scenario.values import AtLeastOne, EventType, Name

if TYPE_CHECKING:
    from sim.scenario.model import Action, Fault

DiskOperation = Literal["read", "write", "sync", "truncate"]
FailingOperation = Literal["read", "write", "sync"]
Unsynced = Literal["lost", "kept", "some", "torn"]
Inside = Literal["begin", "work"]

DISK_KINDS = ("power_loss", "disk_error", "disk_full", "sync_lies", "slow_disk")
"""The kinds that befall the machine, and so all nodes: they take no `node`, and need a `[disk]`."""

_OPTIONAL, _REQUIRED = "optional", "required"

DISK_FAULT_KEYS: Mapping[str, Mapping[str, str]] = {
    "power_loss": {"for_s": _OPTIONAL, "unsynced": _OPTIONAL},
    "disk_error": {"operation": _REQUIRED, "operations": _OPTIONAL},
    "disk_full": {"for_s": _OPTIONAL},
    "sync_lies": {"for_s": _OPTIONAL},
    "slow_disk": {"for_s": _OPTIONAL, "commit_ms": _REQUIRED},
}
"""Which keys these kinds take besides `as`, `kind`, `at_s`, `when`."""

TAKEN_BY_DISK_FAULTS = ("unsynced", "operation", "operations", "commit_ms")


@attrs.frozen(kw_only=True)
class Disk:
    """The database is a file on a simulated disk, which all nodes share."""

    synchronous: Literal["full", "normal", "off"] = "full"
    checkpoint_pages: AtLeastOne = 1000


@attrs.frozen(kw_only=True)
class OnDisk:
    """At the `nth` such operation of the disk, `before` it is done or `after`.

    With `event`, `session` or `node` only those count by which a node commits, or tries to, such an event.
    """

    leads: ClassVar[str] = "disk"

    disk: DiskOperation
    nth: AtLeastOne = 1
    side: Literal["before", "after"] = "before"
    event: EventType | None = None
    session: Name | None = None
    node: Name | None = None


def disk_flaws(what: Action | Fault, *, has_disk: bool) -> Iterator[tuple[str, str, str]]:
    """(key, message, hint) for what doesn't go together in an action or a fault, as far as disks go."""
    kind = getattr(what, "kind", None)
    of_disk = kind in DISK_KINDS
    on_disk = isinstance(what.when, OnDisk)
    hint = "write [disk], or leave the fast database in memory and take another trigger"
    if (of_disk or on_disk) and not has_disk:
        key = "kind" if of_disk else "when"
        yield key, "there is no disk: the database is in memory", hint if on_disk else "write [disk]"
    if on_disk and not of_disk:
        word = f"kind = {show(kind)}" if kind else "an action"
        yield "when", f"{word} can't happen in the middle of an operation", f"{', '.join(DISK_KINDS)} can"
    if kind is None:
        return
    if getattr(what, "inside", None) and getattr(what, "applied", None):
        yield "applied", "inside and applied don't go together", "a batch that was refused isn't applied"
    if getattr(what, "statement", None) and getattr(what, "inside", None) != "work":
        yield "statement", 'statement needs inside = "work"', ""
    if of_disk and what.node:
        yield "node", f"kind = {show(kind)} befalls the machine, and so all nodes", "leave node out"
    if not of_disk and not what.node:
        yield "", f"kind = {show(kind)} needs node", ""
