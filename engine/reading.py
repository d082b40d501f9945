"""Reading a session's log: gap-free, without duplicates, in pages, and on from there if asked to follow."""

from __future__ import annotations

import collections
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

import attrs

from engine.codec import decode_row
from engine.doorbell import Bell, Doorbells
from engine.errors import EngineClosed, EventError, SessionNotFound, StoreClosed
from engine.events import SessionDeletedEvent, Stored
from engine.ports import Reader, Store
from engine.records import EventRow, SessionRow


@attrs.frozen
class Synced:
    """The reader reached the watermark, the latest seq when reading began: None if the log was empty."""

    seq: int | None


@attrs.frozen(kw_only=True)
class _Page:
    rows: list[EventRow]
    latest: int
    session: SessionRow | None


class LogReader:
    """An asynchronous iterator over stored events, and one `Synced` where reading began.

    Use it as `async with log.read(…) as reader: async for item in reader`. Without `follow` it ends after
    `Synced`; with it, it goes on until the session is deleted. It is a plain object, no generator: dropping
    it leaves nothing behind but its doorbell, which the block takes down.

    `look` is called with the snapshot of each read that found nothing new; what it raises ends the reading.

    Raises `SessionNotFound`, `UnknownEvent`, `EventMalformed`, `EngineClosed`, or a `StoreError`.
    """

    def __init__(
        self,
        store: Store,
        doorbells: Doorbells,
        session_id: str,
        *,
        after: int,
        follow: bool,
        page: int,
        closed: Callable[[], bool],
        look: Callable[[Reader], None] | None = None,
    ) -> None:
        self.session_id = session_id
        self.seq = after  #: the seq of the latest event handed out
        self._store = store
        self._follow = follow
        self._page = page
        self._closed = closed
        self._look = look or (lambda tx: None)
        self._ready: collections.deque[Stored | Synced] = collections.deque()
        self._watermark: int | None = None
        self._synced = False
        self._ended = False
        self._damage: EventError | None = None  #: why the event after those in `_ready` can't be handed out
        self._hanging: AbstractContextManager[Bell] = doorbells.bell(session_id)
        self._bell: Bell | None = None

    async def __aenter__(self) -> LogReader:
        self._bell = self._hanging.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hanging.__exit__(kind, error, trace)
        self._bell = None

    def __aiter__(self) -> LogReader:
        return self

    async def __anext__(self) -> Stored | Synced:
        assert self._bell is not None, "a LogReader is used inside `async with`"
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            if self._damage is not None:
                raise self._damage
            self._bell.clear()
            if self._closed():
                raise self._engine_closed()
            more = await self._fill()
            if not (self._ready or self._ended or self._damage or more):
                await self._bell.wait()
        item = self._ready.popleft()
        if isinstance(item, Stored):
            self.seq = item.seq
        return item

    def _engine_closed(self) -> EngineClosed:
        return EngineClosed(f"the engine closed; read on from seq {self.seq} with another one")

    async def _read(self, work: Callable[[Reader], _Page]) -> _Page:
        try:
            return await self._store.read(work)
        except StoreClosed as exc:  # the engine closed between our last look and the read
            if self._closed():
                raise self._engine_closed() from exc
            raise

    async def _fill(self) -> bool:
        """Read one page. True if another page is there already."""
        after, session_id, limit = self.seq, self.session_id, self._page

        def work(tx: Reader) -> _Page:
            rows = tx.events(session_id, after, limit)
            if not rows:
                self._look(tx)
            return _Page(
                rows=rows,
                latest=tx.latest_seq(session_id),
                session=tx.session(session_id),
            )

        page = await self._read(work)
        if page.session is None:
            raise SessionNotFound(f"there is no session {session_id} in this database")
        if self._watermark is None:
            self._watermark = page.latest
        reached = after
        for row in page.rows:
            if not self._synced and row.seq > self._watermark:
                self._sync()
            if self._ended:
                return False
            try:
                stored = decode_row(row)
            except EventError as exc:  # what precedes it is handed out first
                self._damage = exc
                return False
            self._ready.append(stored)
            reached = row.seq
            if isinstance(stored.event, SessionDeletedEvent):
                self._ended = True
        if not self._synced and reached >= self._watermark:
            self._sync()
        if page.session.deleted and reached >= page.latest:
            self._ended = True  # the cursor was at the tombstone, or past it: nothing will ever come
        return reached < page.latest

    def _sync(self) -> None:
        assert self._watermark is not None
        reached = max(self._watermark, self.seq)
        self._ready.append(Synced(None if reached < 0 else reached))
        self._synced = True
        if not self._follow:
            self._ended = True
