"""The log against a naive model, a list of titles per session, over two stores on one file."""

from __future__ import annotations

import contextlib
import queue
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from engine import events as ev
from engine.events import Event, Stored
from engine.log import Log
from engine.plan import Plan
from engine.reading import LogReader, Synced
from tests.engine.real import CONFIG, created, open_log, read_all, renamed

NODES = st.sampled_from([0, 1])
COUNTS = st.integers(1, 5)


class Loop:
    """A Trio run in a thread of its own that holds two logs open, and does what it is asked."""

    def __init__(self, path: Path, page: int) -> None:
        self._ready: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=trio.run, args=(self._main, path, page))
        self._thread.start()
        self._token, self._stop, self.logs = self._ready.get(timeout=30)

    async def _main(self, path: Path, page: int) -> None:
        config = attrs.evolve(CONFIG, page_events_max=page, poll_ms=1)
        async with open_log(path, config=config) as one, open_log(path, config=config) as two:
            stop = trio.Event()
            self._ready.put((trio.lowlevel.current_trio_token(), stop, [one, two]))
            await stop.wait()

    def do(self, call: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run an asynchronous function there; its value, or what it raised."""
        return trio.from_thread.run(call, *args, trio_token=self._token)

    def close(self) -> None:
        trio.from_thread.run_sync(self._stop.set, trio_token=self._token)
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()


@attrs.define(eq=False)
class Cursor:
    """A reader, and where the model says that it stands."""

    session_id: str
    reader: LogReader
    after: int
    follow: bool
    watermark: int | None = None  #: set by its first read
    synced: bool = False
    ended: bool = False


class LogMachine(RuleBasedStateMachine):
    """Publish and fail to publish on two nodes; read and follow with cursors that begin anywhere."""

    sessions: Bundle[str] = Bundle("sessions")
    cursors: Bundle[Cursor] = Bundle("cursors")

    @initialize(page=st.integers(1, 4))
    def open(self, page: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.loop = Loop(Path(self.folder.name) / "log.db", page)
        self.model: dict[str, list[str]] = {}
        self.deleted: set[str] = set()
        self.told: dict[str, list[int]] = {}

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()
            self.folder.cleanup()

    def _publish(self, node: int, *events: Event, fails: bool = False) -> None:
        session_id = events[0].session_id

        def commit(tx: object, stored: object) -> None:
            if fails:
                raise LookupError

        async def publish(log: Log) -> None:
            plan = Plan(events=events, commit=commit, value=None)
            with contextlib.suppress(LookupError):
                await log.publish(
                    session_id,
                    lambda tx, row: plan,
                    after_commit=lambda published: self.told.setdefault(session_id, []).extend(
                        item.seq for item in published.stored
                    ),
                )

        self.loop.do(publish, self.loop.logs[node])

    # --- publishing ----------------------------------------------------------------------------------

    @rule(target=sessions, node=NODES)
    def create(self, node: int) -> str:
        session_id = f"ses_{len(self.model)}"
        self._publish(node, created(session_id))
        self.model[session_id] = [""]
        return session_id

    @rule(session_id=sessions, node=NODES, count=COUNTS)
    def rename(self, session_id: str, node: int, count: int) -> None:
        if session_id in self.deleted:
            return
        model = self.model[session_id]
        titles = [str(len(model) + number) for number in range(count)]
        self._publish(node, *(renamed(session_id, title) for title in titles))
        model += titles

    @rule(session_id=sessions, node=NODES, count=COUNTS)
    def fail(self, session_id: str, node: int, count: int) -> None:
        self._publish(node, *(renamed(session_id, "never") for _ in range(count)), fails=True)

    @rule(session_id=sessions, node=NODES)
    def delete(self, session_id: str, node: int) -> None:
        if session_id not in self.deleted:
            self._publish(node, ev.SessionDeletedEvent(session_id=session_id))
            self.deleted.add(session_id)
            self.model[session_id].append("deleted")

    # --- reading -------------------------------------------------------------------------------------

    @rule(target=cursors, session_id=sessions, node=NODES, after=st.integers(-1, 6), follow=st.booleans())
    def open_reader(self, session_id: str, node: int, after: int, follow: bool) -> Cursor:
        reader = self.loop.logs[node].read(session_id, after=after, follow=follow)
        self.loop.do(reader.__aenter__)
        return Cursor(session_id, reader, after, follow)

    @rule(cursor=cursors, count=st.integers(1, 8))
    def read_on(self, cursor: Cursor, count: int) -> None:
        for _ in range(count):
            expected = self._expected(cursor)
            if expected is None:
                return
            assert self._next(cursor) == expected

    def _expected(self, cursor: Cursor) -> object:
        """What the model says comes next: a title, `Synced`, the end, or None if the reader would wait."""
        log = self.model[cursor.session_id]
        if cursor.watermark is None:
            cursor.watermark = len(log) - 1
        if cursor.ended:
            return StopAsyncIteration
        if not cursor.synced and cursor.after >= cursor.watermark:
            cursor.synced, cursor.ended = True, not cursor.follow
            return Synced(cursor.after)
        if cursor.after + 1 < len(log):
            cursor.after += 1
            return cursor.after, log[cursor.after]
        if log[-1] == "deleted" and cursor.after + 1 == len(log):
            return StopAsyncIteration
        return None

    def _next(self, cursor: Cursor) -> object:
        try:
            item = self.loop.do(cursor.reader.__anext__)
        except StopAsyncIteration:
            return StopAsyncIteration
        return item if isinstance(item, Synced) else (item.seq, _title(item))

    @invariant()
    def memory_agrees(self) -> None:
        for session_id, model in getattr(self, "model", {}).items():
            assert self.told[session_id] == list(range(len(model)))

    @rule(node=NODES)
    def whole_logs_agree(self, node: int) -> None:
        log = self.loop.logs[node]
        for session_id, model in self.model.items():
            items = self.loop.do(lambda one: read_all(log.read(one)), session_id)
            assert [(item.seq, _title(item)) for item in items[:-1]] == list(enumerate(model))
            assert items[-1] == Synced(len(model) - 1)


def _title(stored: Stored) -> str:
    event = stored.event
    if isinstance(event, ev.SessionDeletedEvent):
        return "deleted"
    assert isinstance(event, ev.SessionCreated | ev.SessionRenamed)
    return event.title


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
