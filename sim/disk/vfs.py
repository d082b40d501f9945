"""Lets SQLite keep its files on a simulated disk: the adapter, an apsw VFS.

It has no shared memory, so a write-ahead log needs `locking_mode = exclusive`; then no other connection may
be there, and a lock is always granted.
"""
# ruff: noqa: N802  (apsw calls these methods by SQLite's names)

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import apsw

from sim.disk.files import DiskError, DiskFile, DiskFull, Operation, SimDisk

T = TypeVar("T")

CODES: dict[Operation, int] = {
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
}


class DiskVfs(apsw.VFS):
    """Registered as long as it lives. `name` is what connections are opened with."""

    def __init__(self, disk: SimDisk) -> None:
        self.name = f"fencepost-disk-{id(self):x}"
        self._disk = disk
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """Open a file, or make it."""
        flags[1] = flags[0]
        if name is None:  # a statement's journal, say: such files live in memory, and nothing strikes them
            return cast(apsw.VFSFile, OpenFile(SimDisk(), DiskFile()))
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        file = self._disk.files.get(path)
        if file is None:
            if not flags[0] & apsw.SQLITE_OPEN_CREATE:
                raise apsw.CantOpenError(f"{path} isn't there")
            file = self._disk.files[path] = DiskFile()
        return cast(apsw.VFSFile, OpenFile(self._disk, file))

    def xDelete(self, filename: str, syncdir: bool) -> None:
        """Delete a file, durably."""
        if self._disk.files.pop(filename, None) is None:
            raise _error(apsw.SQLITE_IOERR_DELETE_NOENT, f"{filename} isn't there")

    def xAccess(self, pathname: str, flags: int) -> bool:
        """Whether it is there; whoever sees a file may write it."""
        return pathname in self._disk.files

    def xFullPathname(self, name: str) -> str:
        """There are no folders."""
        return name


class OpenFile:
    """`apsw.VFSFile` on a simulated disk."""

    def __init__(self, disk: SimDisk, file: DiskFile) -> None:
        self._disk = disk
        self._file = file

    def xRead(self, amount: int, offset: int) -> bytes:
        """Read."""
        return _told(lambda: self._disk.read(self._file, amount, offset))

    def xWrite(self, data: bytes, offset: int) -> None:
        """Write."""
        _told(lambda: self._disk.write(self._file, bytes(data), offset))

    def xTruncate(self, newsize: int) -> None:
        """Cut."""
        _told(lambda: self._disk.truncate(self._file, newsize))

    def xSync(self, flags: int) -> None:
        """Make durable, or say so."""
        _told(lambda: self._disk.sync(self._file))

    def xFileSize(self) -> int:
        """How long it is now."""
        return len(self._file.content)

    def xClose(self) -> None:
        """Nothing is held."""

    def xLock(self, level: int) -> None:
        """Nobody else is there."""

    def xUnlock(self, level: int) -> None:
        """Nobody else is there."""

    def xCheckReservedLock(self) -> bool:
        """Nobody else is there."""
        return False

    def xFileControl(self, op: int, ptr: int) -> bool:
        """No request is understood."""
        return False

    def xSectorSize(self) -> int:
        """As a usual file system says."""
        return 4096

    def xDeviceCharacteristics(self) -> int:
        """As a usual file system says: a power loss harms no byte beside those that are being written."""
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE


def _told(act: Callable[[], T]) -> T:
    """Do it; what goes wrong is told to SQLite as its own code."""
    try:
        return act()
    except DiskError as exc:
        raise _error(CODES[exc.operation], str(exc)) from exc
    except DiskFull as exc:
        raise apsw.FullError(str(exc)) from exc


def _error(code: int, text: str) -> apsw.Error:
    error = apsw.IOError(text)
    vars(error).update(result=code & 0xFF, extendedresult=code)
    return error
