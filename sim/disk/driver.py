"""A connection whose statements fail when a fault says so: at BEGIN, or in the middle of a work."""

from __future__ import annotations

from typing import Any

import apsw
import attrs

from sim.scenario.disk import Inside

WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")
CODES = {
    "StoreBusy": apsw.SQLITE_BUSY,
    "StoreFull": apsw.SQLITE_FULL,
    "StoreIOError": apsw.SQLITE_IOERR_WRITE,
    "StoreInterrupted": apsw.SQLITE_INTERRUPT,
    "StoreReadOnly": apsw.SQLITE_READONLY,
}
"""What SQLite answers, by the error of Fencepost's that it becomes."""

ENDS_TRANSACTION = ("StoreFull", "StoreIOError", "StoreInterrupted")
"""SQLite can't always undo one statement after these; then it rolls the whole transaction back."""


@attrs.define
class Refusal:
    """Which statement of a batch fails, and how: BEGIN, or the `statement`-th of its works that writes."""

    error: str
    inside: Inside
    statement: int = 1


class RefusingConnection(apsw.Connection):
    """`refusal` is set while a batch runs that is to fail: each of its BEGINs does then, or one statement."""

    refusal: Refusal | None = None
    _in_work = False
    _written = 0

    def execute(self, statements: str, bindings: Any = None, **options: Any) -> apsw.Cursor:
        """Execute, unless it is to be refused."""
        if self.refusal is not None:
            self._refuse(self.refusal, statements)
        return super().execute(statements, bindings, **options)

    def _refuse(self, refusal: Refusal, sql: str) -> None:
        if sql.startswith("BEGIN"):
            self._in_work, self._written = False, 0
            if refusal.inside == "begin":
                raise _error(refusal)
        elif sql == "SAVEPOINT work":
            self._in_work = True
        elif self._in_work and sql.lstrip().startswith(WRITES):
            self._written += 1
            if refusal.inside == "work" and self._written == refusal.statement:
                self.refusal = None
                if refusal.error in ENDS_TRANSACTION:
                    super().execute("ROLLBACK")
                raise _error(refusal)


def _error(refusal: Refusal) -> Exception:
    error = apsw.exception_for(CODES[refusal.error])
    return type(error)(f"injected: {refusal.error} at {refusal.inside}")
