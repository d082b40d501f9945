"""Reading and following on a real store: gap-free, once each, across every hand-off, and to a clear end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest
import trio
import trio.testing

from engine import events as ev
from engine.errors import EngineClosed, EventMalformed, SessionNotFound
from engine.events import Stored
from engine.log import Log
from engine.ports import Reader
from engine.reading import LogReader, Synced
from engine.records import EventRow
from tests.engine.real import CONFIG, created, open_log, publish, read_all, renamed

T = TypeVar("T")
SES = "ses_one"
SMALL_PAGES = attrs.evolve(CONFIG, page_events_max=3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a new database may go."""
    return tmp_path / "log.db"


async def _filled(log: Log, count: int) -> None:
    """A session with events 0 … count - 1."""
    await publish(log, created(SES), *(renamed(SES, str(number)) for number in range(1, count)))


def _shown(items: list[Stored | Synced]) -> list[Any]:
    return [item if isinstance(item, Synced) else item.seq for item in items]


async def _take(reader: LogReader, count: int) -> list[Any]:
    return _shown([await anext(reader) for _ in range(count)])


# --- reading -----------------------------------------------------------------------------------------


@pytest.mark.trio
@pytest.mark.parametrize("page", [1, 2, 3, 7, 256])
async def test_pages(path: Path, page: int) -> None:
    """Whatever the page size, events after the cursor come once and in order, then one `Synced`; a cursor at
    or past the end is echoed."""
    async with open_log(path, config=attrs.evolve(CONFIG, page_events_max=page)) as log:
        await publish(log, created(SES))
        for count in range(1, 9):
            for after in range(-1, 10):
                items = _shown(await read_all(log.read(SES, after=after)))
                assert items == [*range(after + 1, count), Synced(max(count - 1, after))]
            await publish(log, renamed(SES, str(count)))


@pytest.mark.trio
@pytest.mark.parametrize("follow", [False, True])
async def test_unknown_session(path: Path, follow: bool) -> None:
    """Reading or following a session that doesn't exist is an error that names it."""
    async with open_log(path) as log:
        with pytest.raises(SessionNotFound, match="ses_unknown"):
            await read_all(log.read("ses_unknown", follow=follow))


@pytest.mark.trio
async def test_good_events_before_a_damaged_one_are_read(path: Path) -> None:
    """What precedes an event that can't be decoded is handed out first, then the error names the culprit."""
    async with open_log(path) as log:
        await _filled(log, 3)
        damaged = EventRow(
            event_id="evt_bad",
            session_id=SES,
            seq=3,
            type="session.renamed",
            version=1,
            created=0,
            execution_id=None,
            data=b'{"nonsense":1}',
        )
        await log.store.write(lambda tx: tx.append_event(damaged))
        async with log.read(SES) as reader:
            assert await _take(reader, 3) == [0, 1, 2]
            for _ in range(2):
                with pytest.raises(EventMalformed, match="seq 3"):
                    await anext(reader)


# --- following ---------------------------------------------------------------------------------------


class SlowReads:
    """A store whose reads stop once they have their result, until they are let go."""

    def __init__(self, log: Log) -> None:
        self._store = log.store
        self.has_read = trio.Event()
        self.go = trio.Event()

    async def read(self, work: Callable[[Reader], T]) -> T:
        value = await self._store.read(work)
        self.has_read.set()
        await self.go.wait()
        return value


@pytest.mark.trio
@pytest.mark.parametrize("empty", [False, True])
async def test_committed_during_the_read(path: Path, empty: bool) -> None:
    """Events that are committed after a page was read, be it an empty one, and before it is handed out are
    followed up: their ring is kept, and `Synced` stands where reading began."""
    async with open_log(path) as log:
        await _filled(log, 2)
        async with log.read(SES, follow=True) as reader:
            got = await _take(reader, 3) if empty else []
            slow = SlowReads(log)
            reader._store = slow  # type: ignore[assignment]

            async def take() -> None:
                got.extend(await _take(reader, 5 - len(got)))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(take)
                await slow.has_read.wait()
                await publish(log, renamed(SES, "late"), renamed(SES, "later"))
                slow.go.set()
            assert got == [0, 1, Synced(1), 2, 3]


@pytest.mark.trio
async def test_committed_between_pages(path: Path) -> None:
    """Events that arrive while the first pages are handed out come after `Synced`, which keeps its place."""
    async with open_log(path, config=SMALL_PAGES) as log:
        await _filled(log, 5)
        async with log.read(SES, follow=True) as reader:
            assert await _take(reader, 1) == [0]
            await publish(log, renamed(SES, "5"), renamed(SES, "6"))
            assert await _take(reader, 7) == [1, 2, 3, 4, Synced(4), 5, 6]


@pytest.mark.trio
async def test_coalesced_rings(path: Path) -> None:
    """64 rings that nobody waited for are one, and still all 64 events come."""
    async with open_log(path, config=SMALL_PAGES) as log:
        await _filled(log, 1)
        async with log.read(SES, follow=True) as reader:
            assert await _take(reader, 2) == [0, Synced(0)]
            for number in range(64):
                await publish(log, renamed(SES, str(number)))
            assert await _take(reader, 64) == list(range(1, 65))


@pytest.mark.trio
async def test_several_followers_under_load(path: Path) -> None:
    """Every follower gets every event once, in order, wherever it began, while publishers race."""
    async with open_log(path, config=SMALL_PAGES) as log:
        await _filled(log, 4)
        got: dict[int, list[Any]] = {}

        async def follow(after: int) -> None:
            async with log.read(SES, after=after, follow=True) as reader:
                got[after] = [
                    item.seq async for item in reader if isinstance(item, Stored) and item.seq > after
                ]

        async def publisher(name: int) -> None:
            for number in range(10):
                await publish(log, renamed(SES, f"{name}/{number}"))

        async with trio.open_nursery() as nursery:
            for after in (-1, 0, 2, 3, 20):
                nursery.start_soon(follow, after)
            async with trio.open_nursery() as publishers:
                for name in range(4):
                    publishers.start_soon(publisher, name)
            await publish(log, ev.SessionDeletedEvent(session_id=SES))
        assert got == {after: list(range(after + 1, 45)) for after in (-1, 0, 2, 3, 20)}


@pytest.mark.trio
async def test_cancelled_follower_loses_nothing(path: Path) -> None:
    """A wait that is cancelled, at whatever instant, leaves the cursor where it was."""
    async with open_log(path, config=SMALL_PAGES) as log:
        await _filled(log, 1)
        got: list[Any] = []
        async with log.read(SES, follow=True) as reader, trio.open_nursery() as nursery:

            async def publisher() -> None:
                for number in range(30):
                    await publish(log, renamed(SES, str(number)))

            nursery.start_soon(publisher)
            checkpoints = 0
            while len(got) < 32:
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as racing:
                        racing.start_soon(_cancel_after, scope, checkpoints % 5)
                        got += _shown([await anext(reader)])
                        racing.cancel_scope.cancel()
                checkpoints += 1
        assert [item for item in got if not isinstance(item, Synced)] == list(range(31))


async def _cancel_after(scope: trio.CancelScope, checkpoints: int) -> None:
    for _ in range(checkpoints):
        await trio.lowlevel.checkpoint()
    scope.cancel()
    await trio.lowlevel.checkpoint()


@pytest.mark.trio
async def test_deleted_session_ends_followers(path: Path) -> None:
    """The tombstone is the last event a follower gets, whether it waited for it or came later."""
    async with open_log(path) as log:
        await _filled(log, 1)
        got: list[Any] = []

        async def follow_on(reader: LogReader) -> None:
            got.extend(_shown([item async for item in reader]))

        async with log.read(SES, follow=True) as reader, trio.open_nursery() as nursery:
            assert await _take(reader, 2) == [0, Synced(0)]
            nursery.start_soon(follow_on, reader)
            await _asleep(reader)
            await publish(log, ev.SessionDeletedEvent(session_id=SES))
        assert got == [1]
        assert _shown(await read_all(log.read(SES, follow=True))) == [0, 1, Synced(1)]


@pytest.mark.trio
@pytest.mark.parametrize("after", [1, 2, 9])
async def test_following_a_deleted_session_from_its_end(path: Path, after: int) -> None:
    """A follower that begins at, or past, the tombstone ends after its `Synced`: nothing will ever come."""
    async with open_log(path) as log:
        await _filled(log, 1)
        await publish(log, ev.SessionDeletedEvent(session_id=SES))
        assert _shown(await read_all(log.read(SES, after=after, follow=True))) == [Synced(after)]


class LateReads:
    """A store whose reads begin only when the store has been closed."""

    def __init__(self, log: Log) -> None:
        self._store = log.store
        self.asked = trio.Event()
        self.go = trio.Event()

    async def read(self, work: Callable[[Reader], T]) -> T:
        self.asked.set()
        await self.go.wait()
        return await self._store.read(work)


async def _follow_to_the_end(reader: LogReader, errors: list[str]) -> None:
    with pytest.raises(EngineClosed) as caught:
        await anext(reader)
    errors.append(str(caught.value))


@pytest.mark.trio
@pytest.mark.parametrize("reading", [False, True])
async def test_engine_closed_while_following(path: Path, reading: bool) -> None:
    """Closing the engine ends a follower with `EngineClosed`, which says where to go on, whether it waited
    for a ring or was about to read."""
    errors: list[str] = []
    async with trio.open_nursery() as nursery:
        async with open_log(path) as log:
            late = LateReads(log)
            await _filled(log, 2)
            reader = await log.read(SES, follow=True).__aenter__()
            assert await _take(reader, 3) == [0, 1, Synced(1)]
            if reading:
                reader._store = late  # type: ignore[assignment]
            nursery.start_soon(_follow_to_the_end, reader, errors)
            await (late.asked.wait() if reading else _asleep(reader))
            log.close()
        late.go.set()
    assert errors == ["the engine closed; read on from seq 1 with another one"]


async def _asleep(reader: LogReader) -> None:
    """Wait until the follower waits for a ring."""
    while reader._bell is None or not reader._bell._rung.statistics().tasks_waiting:
        await trio.lowlevel.checkpoint()


@pytest.mark.trio
async def test_closed_engine_refuses_to_read(path: Path) -> None:
    """A reader that is opened, or goes on, after the engine closed says so."""
    async with open_log(path) as log:
        await _filled(log, 2)
        log.close()
        for follow in (False, True):
            with pytest.raises(EngineClosed):
                await read_all(log.read(SES, follow=follow))


# --- two stores on one file --------------------------------------------------------------------------


@pytest.mark.trio
async def test_followers_of_another_store(path: Path) -> None:
    """What one store commits reaches followers of another store on the same file, and the other way round."""
    async with open_log(path) as one, open_log(path) as two:
        await _filled(one, 1)
        got: dict[str, list[Any]] = {}

        async def follow(name: str, log: Log) -> None:
            async with log.read(SES, follow=True) as reader:
                got[name] = [item.seq async for item in reader if isinstance(item, Stored)]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, "one", one)
            nursery.start_soon(follow, "two", two)
            for number in range(10):
                await publish(two if number % 2 else one, renamed(SES, str(number)))
            await publish(two, ev.SessionDeletedEvent(session_id=SES))
        assert got == {"one": list(range(12)), "two": list(range(12))}
