"""One group commit: many works, one transaction, and who gets which outcome.

Shared by every writer over SQLite, threaded or inline. Nothing here waits, and nothing knows the time but
through what it is handed.

*   Each work runs in a savepoint, so that an ordinary error undoes that work alone.
*   Some errors (a full disk, an interrupt, an I/O error) make SQLite end the whole transaction. What ran
    before is gone, and what ran after would commit by itself, so nothing more runs: the culprit gets the
    error, and everybody else runs again in a fresh transaction.
*   A COMMIT that fails while its transaction stands wasn't applied. One that fails and leaves no transaction
    may have been: the writer's mark, bumped in the same transaction, tells which on a fresh connection.
*   An outcome that was decided in a transaction that never committed is no outcome: a work that failed beside
    others which then vanished may have failed because of them, so it shares their fate.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apsw
import attrs

from engine.errors import AfterCommitFailed, CommitOutcomeUnknown, StoreError, StoreIOError
from engine.events import Stored
from engine.ports import StoreObserver, Transaction
from engine.store.mapping import map_error, own_copy
from engine.store.queries import QUERIES
from engine.store.transaction import SqliteTransaction

logger = logging.getLogger("fencepost.store")

RERUNS_MAX = 3
"""How often a batch runs again as a group; then each work that is left runs once more, alone."""


@attrs.define(kw_only=True, eq=False)
class Item:
    """One work on its way through a batch, and then its outcome: a value with `committed`, or an error."""

    work: Callable[[Transaction], Any]
    after_commit: Callable[[Any], None] | None = None
    label: str = ""
    value: Any = None
    told: Sequence[Stored] = ()
    error: BaseException | None = None
    committed: bool = False

    def succeed(self, value: Any, told: Sequence[Stored]) -> None:
        """Note what the work returned; it counts once `committed` is set."""
        self.value, self.told, self.error = value, told, None

    def fail(self, error: BaseException) -> None:
        """Note an error; nothing of the work was applied, unless the error says otherwise."""
        self.value, self.told, self.error, self.committed = None, (), error, False

    def unwrap(self) -> Any:
        """The value, or the error raised."""
        if self.error is not None:
            raise self.error
        return self.value


@attrs.frozen(kw_only=True)
class BatchResult:
    """What a batch leaves behind: the write connection, a fresh one if `reopened`."""

    connection: apsw.Connection
    reopened: bool


class _Verdict(enum.Enum):
    APPLIED = enum.auto()
    NOT_APPLIED = enum.auto()
    UNKNOWN = enum.auto()


def run_batch(
    connection: apsw.Connection,
    items: Sequence[Item],
    *,
    now_ms: Callable[[], int],
    writer_id: str,
    lock: Callable[[apsw.Connection], None],
    reopen: Callable[[], apsw.Connection],
) -> BatchResult:
    """Run the works of `items` in order and commit them together; each item then holds its outcome.

    `lock` sees to it that the connection holds the write lock (BEGIN IMMEDIATE), or raises a `StoreError`.
    `reopen` closes the write connection and returns a fresh one. `now_ms` is read once per run of a work.
    """
    batch = _Batch(connection=connection, now_ms=now_ms, writer_id=writer_id, lock=lock, reopen=reopen)
    try:
        batch.run(list(items))
    except BaseException:
        batch.roll_back()
        raise
    return BatchResult(connection=batch.connection, reopened=batch.connection is not connection)


@attrs.define(kw_only=True, eq=False)
class _Batch:
    connection: apsw.Connection
    now_ms: Callable[[], int]
    writer_id: str
    lock: Callable[[apsw.Connection], None]
    reopen: Callable[[], apsw.Connection]

    def run(self, items: list[Item]) -> None:
        for _ in range(1 + RERUNS_MAX):
            if not items:
                return
            items = self._round(items)
        for item in items:
            self._round([item])

    def _round(self, items: list[Item]) -> list[Item]:
        """One transaction over `items`; returns those that must run again."""
        try:
            self.lock(self.connection)
            mark = self._bump_mark()
        except (apsw.Error, StoreError) as exc:
            self.roll_back()
            _fail_all(items, exc)
            return []
        for item in items:
            if not self._run_work(item):
                return [other for other in items if other is not item]
        if all(item.error is not None for item in items):
            self.roll_back()
            return []
        return self._commit(items, mark)

    def _run_work(self, item: Item) -> bool:
        """Run one work in its savepoint. False if the whole transaction ended, by whatever way."""
        tx = SqliteTransaction(self.connection, now_ms=self.now_ms())
        try:
            self.connection.execute("SAVEPOINT work")
            value = item.work(tx)
            if self.connection.in_transaction:
                self.connection.execute("RELEASE work")
                item.succeed(value, tx.told)
        except BaseException as exc:  # whatever a work raises belongs to its caller
            item.fail(map_error(exc) if isinstance(exc, apsw.Error) else exc)
        if not self.connection.in_transaction:
            item.fail(tx.ended or item.error or StoreError("the database ended the transaction of this work"))
            return False
        tx.end()
        return item.error is None or self._undo_work()

    def _undo_work(self) -> bool:
        try:
            self.connection.execute("ROLLBACK TO work")
            self.connection.execute("RELEASE work")
        except apsw.Error:  # the work's own error is what its caller needs to see
            self.roll_back()
        return self.connection.in_transaction

    def _commit(self, items: list[Item], mark: int) -> list[Item]:
        try:
            self.connection.execute("COMMIT")
        except apsw.Error as exc:
            return self._commit_failed(items, mark, exc)
        _commit_all(items)
        return []

    def _commit_failed(self, items: list[Item], mark: int, exc: apsw.Error) -> list[Item]:
        if self.connection.in_transaction:
            self.roll_back()
            _fail_all(items, exc)
            return items if isinstance(exc, apsw.BusyError) else []
        verdict = self._look(mark, exc)
        if verdict is _Verdict.APPLIED:
            _commit_all(items)
        elif verdict is _Verdict.NOT_APPLIED:
            _fail_all(items, exc)
        else:
            _fail_all([item for item in items if item.error is not None], exc)
            _fail_unknown([item for item in items if item.error is None], exc)
        return []

    def _look(self, mark: int, exc: apsw.Error) -> _Verdict:
        """Ask a fresh connection, which becomes the write connection, whether `mark` was committed."""
        try:
            self.connection = self.reopen()
            seen = self._read_mark()
        except (apsw.Error, StoreError):
            return _Verdict.UNKNOWN
        if seen == mark and self._made_firm():
            return _Verdict.APPLIED
        if seen == mark - 1 and (not isinstance(map_error(exc), StoreIOError) or self._made_firm()):
            return _Verdict.NOT_APPLIED
        return _Verdict.UNKNOWN

    def _made_firm(self) -> bool:
        """True once a power loss can't change any more what was found after a failed COMMIT.

        Whoever recovers the WAL reads whole frames as committed, though the COMMIT failed before they were
        synced, whatever it failed of. And a sync that failed may leave such frames where nobody looks until
        somebody has to recover it. One more commit syncs them, or overwrites them.
        """
        try:
            self.lock(self.connection)
            self._bump_mark()
            self.connection.execute("COMMIT")
        except (apsw.Error, StoreError):
            self.roll_back()
            return False
        return True

    def _read_mark(self) -> int:
        rows: list[tuple[Any, ...]] = self.connection.execute(
            QUERIES["writer_mark"], (self.writer_id,)
        ).fetchall()
        return int(rows[0][0]) if rows else 0

    def _bump_mark(self) -> int:
        """Count this commit, within it; the mark that is there once it was applied."""
        mark = self._read_mark() + 1
        self.connection.execute(QUERIES["bump_writer_mark"], (self.writer_id,))
        return mark

    def roll_back(self) -> None:
        """Leave no transaction behind. An error here never replaces the one that led here."""
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except apsw.Error as exc:
            logger.error("a ROLLBACK failed; the write connection is opened anew: %s", exc)
            self._reopen_quietly()

    def _reopen_quietly(self) -> None:
        try:
            self.connection = self.reopen()
        except (apsw.Error, StoreError) as exc:
            logger.error("the write connection couldn't be opened anew: %s", exc)


def _commit_all(items: Iterable[Item]) -> None:
    for item in items:
        item.committed = item.error is None


def _fail_all(items: Iterable[Item], exc: StoreError | apsw.Error) -> None:
    for item in items:
        item.fail(own_copy(exc))


def _fail_unknown(items: Iterable[Item], exc: apsw.Error) -> None:
    for item in items:
        error = CommitOutcomeUnknown(f"COMMIT failed and it can't be told whether it was applied: {exc}")
        error.__cause__ = exc
        item.fail(error)


def settle_hop(items: Iterable[Item], observers: Sequence[StoreObserver]) -> None:
    """Bring memory up to what was committed: in commit order, each `after_commit`, then the observers.

    Runs on the thread that the callers wait on, before any of them is rescheduled. An error in one
    `after_commit` becomes that item's `AfterCommitFailed`; the write is applied, and so it is announced.
    """
    for item in items:
        if not item.committed:
            continue
        if item.after_commit is not None:
            _run_after_commit(item, item.after_commit)
        if item.told:
            for observer in observers:
                tell_observer(observer.committed, tuple(item.told))


def _run_after_commit(item: Item, after_commit: Callable[[Any], None]) -> None:
    try:
        after_commit(item.value)
    except Exception as exc:
        error = AfterCommitFailed(
            f"the write{f' {item.label}' if item.label else ''} is applied, but its after_commit raised "
            f"{type(exc).__name__}: {exc}"
        )
        error.__cause__ = exc
        item.error = error


def tell_observer(tell: Callable[..., None], *args: Any) -> None:
    """Call an observer; its error is a bug that must not keep the others, or a caller, from their news."""
    try:
        tell(*args)
    except Exception as exc:
        logger.error("an observer of the store raised %s", type(exc).__name__)
