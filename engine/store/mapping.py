"""Turns driver errors into Fencepost's own: the one table."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import apsw

from engine.errors import (
    ConstraintBroken,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreInterrupted,
    StoreIOError,
    StoreReadOnly,
)

MAPPING: Mapping[type[BaseException], tuple[type[StoreError], str]] = MappingProxyType(
    {
        apsw.BusyError: (StoreBusy, "the database is locked by another process"),
        apsw.LockedError: (StoreBusy, "the database is locked by another connection of this process"),
        apsw.FullError: (StoreFull, "the disk or the database is full"),
        apsw.ReadOnlyError: (StoreReadOnly, "the database can't be written"),
        apsw.PermissionsError: (StoreReadOnly, "access to the database was refused"),
        apsw.IOError: (StoreIOError, "the operating system failed a read, write or sync"),
        apsw.CantOpenError: (StoreIOError, "the database or a file beside it can't be opened"),
        apsw.NoLFSError: (StoreIOError, "the file system can't hold a file of this size"),
        apsw.ProtocolError: (
            StoreIOError,
            "locks don't work here; keep the database on a local disk, not on a network file system",
        ),
        apsw.InterruptError: (StoreInterrupted, "a statement was interrupted"),
        apsw.CorruptError: (StoreCorrupt, "the database is damaged; restore it from a backup"),
        apsw.NotADBError: (StoreCorrupt, "the file isn't a database any more; restore it from a backup"),
        apsw.ConstraintError: (ConstraintBroken, "the schema refused a row"),
        apsw.ConnectionClosedError: (StoreClosed, "the connection is closed"),
    }
)


def map_error(exc: apsw.Error) -> StoreError:
    """A fresh error of Fencepost for a driver's error, which becomes its `__cause__`."""
    kind, advice = MAPPING.get(type(exc), (StoreError, "the database failed"))
    code = getattr(exc, "extendedresult", None)
    number = "" if code is None else f" (SQLite {code})"
    mapped = kind(f"{advice}: {exc}{number}")
    mapped.__cause__ = exc
    return mapped


def own_copy(exc: StoreError | apsw.Error) -> StoreError:
    """The error for one caller of several that fail together: no two share an object, or its traceback."""
    if isinstance(exc, apsw.Error):
        return map_error(exc)
    copy = type(exc)(*exc.args)
    copy.__cause__ = exc.__cause__ or exc
    return copy
