"""Reading a session's log: gap-free, without duplicates, in pages, and on from there if asked to follow."""

from __future__ import annotations

import collections
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

import attrs

from engine.codec import decode_row
from engine.doorbell import Bell, Doorbells
from engine.errors import EngineClosed, SessionNotFound
from engine.events import SessionDeletedEvent, Stored
from engine.ports import Reader, Store
from engine.records import EventRow


@attrs.frozen
class Synced:
    """The reader reached the watermark, the latest seq when reading began: None if the log was empty."""

    seq: int | None


@attrs.frozen(kw_only=True)
class _Page:
    rows: list[EventRow]
    latest: int
    known: bool


class LogReader:
    """An asynchronous iterator over stored events, and one `Synced` where reading began.

    Use it as `async with log.read(…) as reader: async for item in reader`. Without `follow` it ends after
    `Synced`; with it, it goes on until the session is deleted. It is a plain object, no generator: dropping
    it leaves nothing behind but its doorbell, which the block takes down.

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
    ) -> None:
        self.session_id = session_id
        self.seq = after  #: the seq of the latest event handed out
        self._store = store
        self._follow = follow
        self._page = page
        self._closed = closed
        self._ready: collections.deque[Stored | Synced] = collections.deque()
        self._watermark: int | None = None
        self._synced = False
        self._ended = False
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
            self._bell.clear()
            if self._closed():
                raise EngineClosed(f"the engine closed; read on from seq {self.seq} with another one")
            more = await self._fill()
            if not self._ready and not self._ended and not more:
                await self._bell.wait()
        item = self._ready.popleft()
        if isinstance(item, Stored):
            self.seq = item.seq
        return item

    async def _fill(self) -> bool:
        """Read one page. True if another page is there already."""
        after, session_id, limit = self.seq, self.session_id, self._page

        def work(tx: Reader) -> _Page:
            return _Page(
                rows=tx.events(session_id, after, limit),
                latest=tx.latest_seq(session_id),
                known=tx.session(session_id) is not None,
            )

        page = await self._store.read(work)
        if not page.known:
            raise SessionNotFound(f"there is no session {session_id} in this database")
        if self._watermark is None:
            self._watermark = page.latest
        reached = after
        for row in page.rows:
            if not self._synced and row.seq > self._watermark:
                self._sync()
            if self._ended:
                return False
            stored = decode_row(row)
            self._ready.append(stored)
            reached = row.seq
            if isinstance(stored.event, SessionDeletedEvent):
                self._ended = True
        if not self._synced and reached >= self._watermark:
            self._sync()
        return reached < page.latest

    def _sync(self) -> None:
        assert self._watermark is not None
        reached = max(self._watermark, self.seq)
        self._ready.append(Synced(None if reached < 0 else reached))
        self._synced = True
        if not self._follow:
            self._ended = True
