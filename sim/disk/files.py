"""The disk as a file system sees it: what is durable, what was only written, and what fails.

The durability model:

- A write changes what everybody reads at once. It is durable once a sync of its file has returned.
- A sync makes durable all that was done to its file before; one that fails makes nothing durable, and a
  later one that succeeds makes up for it. One that lies reports success and makes nothing durable.
- At a power loss each thing done since the last sync of its file may be lost, kept, or, if it is a write of
  more than one sector, cut at a sector boundary (`sim.disk.loss`). A sector is written whole or not at all.
- That a file was made or deleted is durable at once: the tables of a journaling file system.
- A full disk refuses writes that make a file longer; within its length a file can be written.

Faults strike only while the disk is `exposed`: the simulator's own looks at the database must not meet them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Literal

import attrs

SECTOR_BYTES = 512
"""What a power loss never cuts."""

Operation = Literal["read", "write", "sync", "truncate"]
Side = Literal["before", "after"]
"""A hook is asked before an operation is done and after it."""


class DiskError(Exception):
    """An operation failed. Raised to SQLite, which is told as much as a kernel would tell it."""

    def __init__(self, operation: Operation) -> None:
        super().__init__(f"injected: a {operation} of the disk failed")
        self.operation = operation


class DiskFull(Exception):
    """A write would have made a file longer, and there is no room."""


@attrs.frozen(kw_only=True)
class Change:
    """Something that was done to a file and not synced. `data` is written at `offset`; with None the file is
    cut, or lengthened, to `offset` bytes. `number` counts all changes of a disk."""

    number: int
    offset: int
    data: bytes | None

    @property
    def sectors(self) -> int:
        """How many sectors a write touches; a truncation counts as one."""
        if not self.data:
            return 1
        return (self.offset + len(self.data) - 1) // SECTOR_BYTES - self.offset // SECTOR_BYTES + 1

    def cut(self, sectors: int) -> Change:
        """Only the first so many sectors of a write."""
        assert self.data is not None
        end = (self.offset // SECTOR_BYTES + sectors) * SECTOR_BYTES
        return attrs.evolve(self, data=self.data[: end - self.offset])


class DiskFile:
    """One file: its durable bytes, its bytes as read now, and the changes between the two, in order."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.unsynced: list[Change] = []
        self.believed = (
            False  #: a sync said that all is durable, it wasn't, and none has made up for it since
        )
        self._durable = bytearray(content)

    def change(self, change: Change) -> None:
        """Write or truncate; not durable yet."""
        _apply(self.content, change)
        self.unsynced.append(change)

    def sync(self) -> None:
        """Make everything durable."""
        for change in self.unsynced:
            _apply(self._durable, change)
        self.unsynced.clear()
        self.believed = False

    def survivor(self, kept: list[Change]) -> DiskFile:
        """What is found after a power loss that kept these changes."""
        content = bytearray(self._durable)
        for change in kept:
            _apply(content, change)
        return DiskFile(bytes(content))


def _apply(content: bytearray, change: Change) -> None:
    if change.data is None:
        del content[change.offset :]
        content.extend(bytes(change.offset - len(content)))
        return
    if len(content) < change.offset:
        content.extend(bytes(change.offset - len(content)))
    content[change.offset : change.offset + len(change.data)] = change.data


Hook = Callable[[Operation, Side], None]
Meet = Callable[[str, Operation], None]
Survives = Callable[[list[Change]], list[Change]]
"""Which of the unsynced changes of a disk, in the order in which they were made, outlive a power loss."""


class SimDisk:
    """Files by name, and the faults of the disk they are on."""

    def __init__(self) -> None:
        self.files: dict[str, DiskFile] = {}
        self.hook: Hook = lambda operation, side: None  #: hears of each operation while `exposed`
        self.meet: Meet = lambda kind, operation: None  #: hears which kind of fault an operation met
        self.exposed = False
        self.powered = True  #: without power every operation fails while `exposed`
        self.full = 0  #: how many faults fill the disk now
        self.lying = 0  #: how many faults let syncs lie now
        self.failing: dict[Operation, int] = {}  #: how many operations of a kind are still to fail
        self._changes = 0
        self._survivors: dict[str, DiskFile] = {}

    @contextlib.contextmanager
    def exposing(self) -> Iterator[None]:
        """Inside, the disk's faults strike, and its hook hears of operations."""
        self.exposed = True
        try:
            yield
        finally:
            self.exposed = False

    @property
    def lied(self) -> bool:
        """Whether a sync said of something that isn't durable that it is."""
        return any(file.believed for file in self.files.values())

    # --- operations ----------------------------------------------------------------------------------

    def read(self, file: DiskFile, amount: int, offset: int) -> bytes:
        """At most `amount` bytes. Raises `DiskError`."""
        with self._struck("read"):
            return bytes(file.content[offset : offset + amount])

    def write(self, file: DiskFile, data: bytes, offset: int) -> None:
        """Raises `DiskError` or `DiskFull`, with nothing written."""
        with self._struck("write"):
            if self.full and self.exposed and offset + len(data) > len(file.content):
                self.meet("disk_full", "write")
                raise DiskFull("injected: the disk is full")
            file.change(self._change(offset, data))

    def truncate(self, file: DiskFile, size: int) -> None:
        """Raises `DiskError`."""
        with self._struck("truncate"):
            file.change(self._change(size, None))

    def sync(self, file: DiskFile) -> None:
        """Raises `DiskError`, with nothing made durable."""
        with self._struck("sync"):
            if self.lying and self.exposed:
                self.meet("sync_lies", "sync")
                file.believed = file.believed or bool(file.unsynced)
            else:
                file.sync()

    def free(self) -> None:
        """There is room again, unless another fault still fills it."""
        self.full -= 1

    def stop_lying(self) -> None:
        """Syncs do again what they say, unless another fault still lets them lie."""
        self.lying -= 1

    def _change(self, offset: int, data: bytes | None) -> Change:
        self._changes += 1
        return Change(number=self._changes, offset=offset, data=data)

    @contextlib.contextmanager
    def _struck(self, operation: Operation) -> Iterator[None]:
        """The faults that strike an operation: those there are, and those that begin with it."""
        if not self.exposed:
            yield
            return
        self._check(operation)
        self.hook(operation, "before")
        self._check(operation)
        if self.failing.get(operation, 0):
            self.failing[operation] -= 1
            self.meet("disk_error", operation)
            raise DiskError(operation)
        yield
        self.hook(operation, "after")
        self._check(operation)

    def _check(self, operation: Operation) -> None:
        if not self.powered:
            raise DiskError(operation)

    # --- power ---------------------------------------------------------------------------------------

    def lose_power(self, survives: Survives) -> None:
        """Decide what `power_on` will find: what is durable, and what `survives` of the rest. Until then the
        files are there for whoever has them open, but what is done to them comes to nothing."""
        self.powered = False
        made = [change for file in self.files.values() for change in file.unsynced]
        kept = {change.number: change for change in survives(sorted(made, key=_number))}
        self._survivors = {
            name: file.survivor([kept[each.number] for each in file.unsynced if each.number in kept])
            for name, file in self.files.items()
        }

    def power_on(self) -> None:
        """Find what outlived the loss of power. Nothing may be open."""
        self.files, self._survivors = self._survivors, {}
        self.powered = True


def _number(change: Change) -> int:
    return change.number
