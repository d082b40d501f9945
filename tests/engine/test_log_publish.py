"""Publishing on a real store: one transaction, memory first, then the listeners, whatever is cancelled."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from engine import events as ev
from engine.acquiring import Acquired, acquire
from engine.errors import AfterCommitFailed, ClaimLost, ConstraintBroken, EventTooLarge
from engine.events import Stored
from engine.lease import Handle
from engine.log import Log, Published
from engine.plan import Plan
from engine.ports import Transaction
from engine.records import JSON, Claim
from engine.system import RealIds, real_system
from tests.engine.real import CONFIG, created, node_of, open_log, publish, renamed, stored_in

SES = "ses_one"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a new database may go."""
    return tmp_path / "log.db"


class Witness:
    """Everybody who might hear of a commit: a listener, a live subscriber, a bell, an `after_commit`."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def listen(self, stored: Stored) -> None:
        self.heard.append(f"listener {stored.seq}")

    def after_commit(self, published: Published[Any]) -> None:
        self.heard.append(f"after_commit {[item.seq for item in published.stored]}")


# --- one transaction ---------------------------------------------------------------------------------


def _bad_projector(tx: Transaction, row: Claim | None) -> Plan[None]:
    unknown = ev.InputPromoted(session_id=SES, input_id="inp_unknown")
    return Plan(events=[renamed(SES, "never"), unknown], value=None)


def _bad_commit(tx: Transaction, row: Claim | None) -> Plan[None]:
    def commit(tx: Transaction, stored: object) -> None:
        tx.put_generation(SES, 99)
        raise RuntimeError("the hook failed")

    return Plan(events=[renamed(SES, "never")], commit=commit, value=None)


def _too_large(tx: Transaction, row: Claim | None) -> Plan[None]:
    huge = renamed(SES, "x" * CONFIG.event_bytes_max)
    return Plan(events=[renamed(SES, "never"), huge], value=None)


def _foreign(tx: Transaction, row: Claim | None) -> Plan[None]:
    return Plan(events=[renamed(SES, "never"), created("ses_other")], value=None)


def _bad_plan(tx: Transaction, row: Claim | None) -> Plan[None]:
    tx.put_generation(SES, 99)
    raise LookupError("the plan failed")


def _taken_id(tx: Transaction, row: Claim | None) -> Plan[None]:
    return Plan(events=[renamed(SES, "never")], value=None)


FAILURES: list[tuple[Callable[[Transaction, Claim | None], Plan[None]], type[Exception]]] = [
    (_bad_projector, AssertionError),
    (_bad_commit, RuntimeError),
    (_too_large, EventTooLarge),
    (_foreign, AssertionError),
    (_bad_plan, LookupError),
    (_taken_id, ConstraintBroken),
]


class SameIds(RealIds):
    """Draws real ids until it is told to draw the first one again and again."""

    def __init__(self) -> None:
        self.first: str | None = None
        self.stuck = False

    def new(self, prefix: str) -> str:
        drawn = super().new(prefix)
        self.first = self.first or drawn
        return self.first if self.stuck else drawn


@pytest.mark.trio
@pytest.mark.parametrize(("plan", "error"), FAILURES)
async def test_failure_rolls_back_everything(
    path: Path, plan: Callable[[Transaction, Claim | None], Plan[None]], error: type[Exception]
) -> None:
    """A failing plan, projector, commit hook, check or insert leaves no row, and nobody hears of it."""
    witness, ids = Witness(), SameIds()
    system = attrs.evolve(real_system(), ids=ids)
    async with open_log(path, listeners=[witness.listen], system=system) as log:
        await publish(log, created(SES, "before"))
        ids.stuck = plan is _taken_id
        witness.heard.clear()
        with log.live.subscribe() as live, log.doorbells.bell(SES) as bell:
            with pytest.raises(error):
                await log.publish(SES, plan, after_commit=witness.after_commit)
            with trio.move_on_after(0):
                await bell.wait()
                witness.heard.append("bell")
            log.live.close()
            assert [item async for item in live] == []
        assert witness.heard == []
        ids.stuck = False
        title, latest, generation, other = await log.store.read(
            lambda tx: (
                tx.session(SES).title,  # type: ignore[union-attr]
                tx.latest_seq(SES),
                tx.generation(SES),
                tx.session("ses_other"),
            )
        )
        assert (title, latest, generation, other) == ("before", 0, 0, None)
        after = await publish(log, renamed(SES, "after"))
        assert [item.seq for item in after.stored] == [1]


@pytest.mark.trio
async def test_neighbours_of_a_failure_commit(path: Path) -> None:
    """Publications that share a commit with one that fails are stored, without a gap."""
    async with open_log(path) as log:
        await publish(log, created(SES))
        failed: list[BaseException] = []

        async def fails() -> None:
            try:
                await log.publish(SES, _bad_commit)
            except RuntimeError as exc:
                failed.append(exc)

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(publish, log, renamed(SES, str(number)))
                nursery.start_soon(fails)
        assert len(failed) == 6
        stored = await stored_in(log, SES)
        assert [item.seq for item in stored] == list(range(7))
        titles = [item.event.title for item in stored[1:] if isinstance(item.event, ev.SessionRenamed)]
        assert sorted(titles) == [str(number) for number in range(6)]


# --- order -------------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_memory_first_then_listeners_then_the_caller(path: Path) -> None:
    """`after_commit` runs before bells, live channel and listeners, and the caller resumes last."""
    witness = Witness()
    async with open_log(path, listeners=[witness.listen]) as log:
        await publish(log, created(SES))
        witness.heard.clear()
        rung: list[bool] = []

        def after_commit(published: Published[None]) -> None:
            witness.after_commit(published)
            rung.append(bell._rung.is_set() or bool(live._buffer))

        with log.live.subscribe(SES) as live, log.doorbells.bell(SES) as bell:
            await publish(log, renamed(SES, "a"), renamed(SES, "b"), after_commit=after_commit)
            witness.heard.append("caller")
            await bell.wait()
            assert [(await anext(live)).seq for _ in range(2)] == [1, 2]  # type: ignore[union-attr]
        assert witness.heard == ["after_commit [1, 2]", "listener 1", "listener 2", "caller"]
        assert rung == [False]


@pytest.mark.trio
async def test_listener_error_is_isolated(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A listener that raises is logged; the next one, the publisher and the event are unharmed."""
    witness = Witness()

    async def broken(stored: Stored) -> None:
        raise RuntimeError("the listener is broken")

    async with open_log(path, listeners=[broken, witness.listen]) as log:
        with caplog.at_level(logging.ERROR, "fencepost"):
            published = await publish(log, created(SES))
        assert [item.seq for item in published.stored] == [0]
        assert witness.heard == ["listener 0"]
        assert [record.message for record in caplog.records] == ["a listener failed"]


@pytest.mark.trio
async def test_hanging_listener_is_bounded(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A listener that never returns is cut off at `listener_ms_max`, for each event anew."""
    witness, started = Witness(), []

    async def hangs(stored: Stored) -> None:
        started.append(stored.seq)
        await trio.sleep_forever()

    config = attrs.evolve(CONFIG, listener_ms_max=1)
    async with open_log(path, listeners=[hangs, witness.listen], config=config) as log:
        with caplog.at_level(logging.WARNING, "fencepost"):
            await publish(log, created(SES), renamed(SES, "a"))
        assert started == [0, 1]
        assert witness.heard == ["listener 0", "listener 1"]
        assert len(caplog.records) == 2


@pytest.mark.trio
async def test_cancelled_while_listeners_are_told(path: Path) -> None:
    """A cancellation in a listener reaches the publisher, while the event is stored and memory knows it."""
    witness = Witness()
    scope = trio.CancelScope()

    async def cancels(stored: Stored) -> None:
        if stored.seq == 1:
            scope.cancel()
            await trio.lowlevel.checkpoint()
            raise AssertionError("the checkpoint lets a cancellation through")

    async with open_log(path, listeners=[cancels, witness.listen]) as log:
        await publish(log, created(SES))
        with scope:
            await publish(log, renamed(SES, "a"), renamed(SES, "b"), after_commit=witness.after_commit)
        assert scope.cancelled_caught
        assert witness.heard == ["listener 0", "after_commit [1, 2]"]
        assert [item.seq for item in await stored_in(log, SES)] == [0, 1, 2]


# --- many at once ------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_concurrent_publishers_leave_no_gap(path: Path) -> None:
    """Events of each session are numbered 0 … n by one transaction each, and no event id comes twice."""
    sessions = [f"ses_{number}" for number in range(3)]
    returned: dict[str, list[list[int]]] = {session_id: [] for session_id in sessions}
    async with open_log(path) as log:
        for session_id in sessions:
            await publish(log, created(session_id))

        async def publisher(name: int) -> None:
            for turn in range(8):
                session_id = sessions[(name + turn) % 3]
                events = [renamed(session_id, f"{name}/{turn}/{part}") for part in range(1 + turn % 3)]
                published = await publish(log, *events)
                returned[session_id].append([item.seq for item in published.stored])

        async with trio.open_nursery() as nursery:
            for name in range(8):
                nursery.start_soon(publisher, name)
        ids: list[str] = []
        for session_id in sessions:
            stored = await stored_in(log, session_id)
            ids += [item.event_id for item in stored]
            assert [item.seq for item in stored] == list(range(len(stored)))
            assert all(seqs == list(range(seqs[0], seqs[0] + len(seqs))) for seqs in returned[session_id])
            assert sorted(seq for seqs in returned[session_id] for seq in seqs) == list(range(1, len(stored)))
        assert len(ids) == len(set(ids))


# --- the envelope and the bounds ---------------------------------------------------------------------


@pytest.mark.trio
async def test_envelope(path: Path) -> None:
    """Metadata, cleaned, and location stand in each event's envelope; a client's event has no execution."""
    metadata: dict[str, JSON] = {"trace": "\ud83d", "n": [1, None]}
    async with open_log(path) as log:
        events = [created(SES), renamed(SES, "a")]
        published = await log.publish(
            SES, lambda tx, row: Plan(events=events, value="v", metadata=metadata, location="berlin")
        )
        assert published.value == "v"
        assert published.row is None
        for item in await stored_in(log, SES):
            assert item.metadata == {"trace": "\ufffd", "n": [1, None]}
            assert (item.location, item.execution_id) == ("berlin", None)
            assert item.created > 1_600_000_000_000
        assert await stored_in(log, SES) == list(published.stored)


@pytest.mark.trio
async def test_event_too_large(path: Path) -> None:
    """An event past `event_bytes_max` is refused by name, and one that just fits is stored."""
    config = attrs.evolve(CONFIG, event_bytes_max=530_000)
    rest = len('{"session_id":"ses_one","title":""}')
    async with open_log(path, config=config) as log:
        await publish(log, created(SES))
        with pytest.raises(EventTooLarge, match=r"session\.renamed"):
            await publish(log, renamed(SES, "x" * (530_000 - rest + 1)))
        await publish(log, renamed(SES, "x" * (530_000 - rest)))
        assert [item.seq for item in await stored_in(log, SES)] == [0, 1]


# --- under a claim -----------------------------------------------------------------------------------


async def _claimed(log: Log, nursery: trio.Nursery) -> Handle:
    node = node_of(log, nursery)
    admitted = ev.InputAdmitted(
        session_id=SES, input_id="inp_1", kind="user", delivery="steer", payload={"text": "hi"}
    )
    await publish(log, created(SES), admitted)
    got: list[Acquired] = []
    assert await acquire(node, SES, None, got.append)
    return got[0].handle


@pytest.mark.trio
async def test_after_commit_that_raises_costs_the_claim(path: Path) -> None:
    """The events are stored and announced, the caller gets `AfterCommitFailed`, and its handle is dead."""
    async with open_log(path) as log, trio.open_nursery() as nursery:
        handle = await _claimed(log, nursery)
        with log.live.subscribe(SES) as live:

            def broken(published: Published[None]) -> None:
                raise LookupError("memory is broken")

            with pytest.raises(AfterCommitFailed) as caught:
                await publish(log, renamed(SES, "applied"), claim=handle, after_commit=broken)
            assert isinstance(caught.value.__cause__, LookupError)
            heard = await anext(live)
        stored = await stored_in(log, SES)
        assert stored[-1] == heard
        assert stored[-1].execution_id == handle.fence.execution_id
        with pytest.raises(ClaimLost):
            await publish(log, renamed(SES, "never"), claim=handle)
        assert await stored_in(log, SES) == stored


@pytest.mark.trio
async def test_fenced_publication_renews_and_is_refused_once_lost(path: Path) -> None:
    """Each publication renews its claim; one under a fence that was taken over applies nothing, and the
    handle stays dead."""
    async with open_log(path) as log, trio.open_nursery() as nursery:
        handle = await _claimed(log, nursery)
        first = await publish(log, renamed(SES, "mine"), claim=handle)
        second = await publish(log, renamed(SES, "mine too"), claim=handle)
        assert first.row is not None
        assert second.row is not None
        assert second.row.version > first.row.version
        assert second.row.expires_at >= first.row.expires_at

        def steal(tx: Transaction) -> None:
            row = tx.claim(SES)
            assert row is not None
            tx.put_claim(attrs.evolve(row, execution_id="exe_thief", generation=row.generation + 1))

        await log.store.write(steal)
        before = await stored_in(log, SES)
        for _ in range(2):
            with pytest.raises(ClaimLost, match=handle.fence.execution_id):
                await publish(log, renamed(SES, "never"), claim=handle)
        assert await stored_in(log, SES) == before
        assert handle.lost is not None
