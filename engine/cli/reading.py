"""What the commands read: pages of plain values, each from one snapshot of a file that others may write."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TypeVar

import attrs

from engine.codec import decode_json
from engine.errors import EventError, SessionNotFound, StoreCorrupt
from engine.ports import Reader
from engine.records import JSON, Claim, EventRow, RecoveryRow, SessionRow
from engine.store import ReadOnlyStore
from engine.verify import (
    Breach,
    Findings,
    Pending,
    Unreadable,
    UnreadableRow,
    read_session,
    session_ids,
    verify_session,
)

T = TypeVar("T")

PAGE = 1_000

POLL_S = 0.05
"""How often a follower looks whether anybody has committed."""


@attrs.frozen(kw_only=True)
class Overview:
    """One session in a list."""

    row: SessionRow
    latest_seq: int
    pending: int
    parked: int
    claim: Claim | None
    recovery: RecoveryRow | None

    @property
    def quarantined(self) -> bool:
        """Whether it isn't executed because of a defect."""
        return self.recovery is not None and self.recovery.recovery_error is not None

    @property
    def status(self) -> str:
        """The session's state in a word or two."""
        if self.row.deleted:
            return "deleted"
        return "quarantined" if self.quarantined else self.row.status


def read(store: ReadOnlyStore, work: Callable[[Reader], T]) -> T:
    """Run `work` on a snapshot. Raises a `StoreError`; text that isn't UTF-8 is `StoreCorrupt`, too."""
    try:
        return store.read(work)
    except ValueError as exc:
        raise StoreCorrupt(f"a row holds what can't be read: {exc}") from exc


def overviews(store: ReadOnlyStore) -> Iterator[Overview]:
    """Every session by id, tombstones included."""
    after = ""
    while page := read(store, functools.partial(overview_page, after=after)):
        yield from page
        after = page[-1].row.session_id


def overview_page(tx: Reader, after: str) -> list[Overview]:
    """The next sessions by id; empty at the end."""
    return [_overview(tx, row) for row in tx.sessions(after, PAGE)]


def _overview(tx: Reader, row: SessionRow) -> Overview:
    session_id = row.session_id
    return Overview(
        row=row,
        latest_seq=tx.latest_seq(session_id),
        pending=tx.pending_count(session_id),
        parked=tx.parked_count(session_id),
        claim=tx.claim(session_id),
        recovery=tx.recovery(session_id),
    )


def event_rows(store: ReadOnlyStore, session_id: str, after: int) -> Iterator[EventRow]:
    """The session's log after a seq, page by page. Raises `SessionNotFound`, at once."""
    _check_known(store, session_id)
    return _pages(store, session_id, after)


def _check_known(store: ReadOnlyStore, session_id: str) -> None:
    if not read(store, lambda tx: tx.session(session_id) is not None or tx.latest_seq(session_id) >= 0):
        raise SessionNotFound(f"there is no session {session_id} in this database")


def _pages(store: ReadOnlyStore, session_id: str, after: int) -> Iterator[EventRow]:
    while page := read(store, functools.partial(_page, session_id=session_id, after=after)):
        yield from page
        after = page[-1].seq


def _page(tx: Reader, session_id: str, after: int) -> list[EventRow]:
    return tx.events(session_id, after, PAGE)


def follow(
    store: ReadOnlyStore, session_id: str, after: int, pause: Callable[[float], None]
) -> Iterator[EventRow]:
    """The session's log after a seq, and on from there as it grows, whichever process writes it.

    It ends after a tombstone, or when the session was purged. `pause(seconds)` waits between two looks.
    Raises `SessionNotFound`, at once.
    """
    _check_known(store, session_id)
    return _followed(store, session_id, after, pause)


def _followed(
    store: ReadOnlyStore, session_id: str, after: int, pause: Callable[[float], None]
) -> Iterator[EventRow]:
    while True:
        page, over = read(store, functools.partial(_growing, session_id=session_id, after=after))
        yield from page
        if page:
            after = page[-1].seq
            continue
        if over:
            return
        pause(POLL_S)
        while not store.changed():
            pause(POLL_S)


def _growing(tx: Reader, session_id: str, after: int) -> tuple[list[EventRow], bool]:
    """A page, and whether the session will never get another event."""
    session = tx.session(session_id)
    return tx.events(session_id, after, PAGE), session is None or session.deleted


def data_of(row: EventRow) -> JSON:
    """What the event says; bytes that aren't JSON come as text with what isn't UTF-8 replaced."""
    try:
        return decode_json(row.data)
    except EventError:
        return {"not_json": row.data.decode("utf-8", "replace")}


# --- verify ------------------------------------------------------------------------------------------


@attrs.define(kw_only=True)
class Report:
    """The findings of a whole file. `damage` is what SQLite itself finds wrong with it."""

    file: str
    sessions: int = 0
    events: int = 0
    damage: list[str] = attrs.field(factory=list)
    breaches: list[Breach] = attrs.field(factory=list)
    pending: list[Pending] = attrs.field(factory=list)
    unreadable: list[Unreadable | UnreadableRow] = attrs.field(factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the file; what is pending doesn't."""
        return not (self.damage or self.breaches or self.unreadable)

    def add(self, events: int, findings: Findings) -> None:
        """One more session."""
        self.sessions += 1
        self.events += events
        self.breaches += findings.breaches
        self.pending += findings.pending
        self.unreadable += findings.unreadable


def verify_file(store: ReadOnlyStore, file: str) -> Report:
    """Check every session of an open file, each on a snapshot of its own, so that no writer is held up."""
    report = Report(file=file, damage=store.damage())
    with contextlib.suppress(_Unreadable):
        for session_id in _or_damage(report, store, session_ids):
            record = _or_damage(report, store, functools.partial(read_session, session_id=session_id))
            report.add(len(record.events), verify_session(record))
    return report


class _Unreadable(Exception):
    """The file can't be read on from here; the report says why."""


def _or_damage(report: Report, store: ReadOnlyStore, work: Callable[[Reader], T]) -> T:
    try:
        return read(store, work)
    except StoreCorrupt as exc:
        report.damage.append(str(exc))
        raise _Unreadable from exc
