"""The database on the simulated disk: what it knows of commits once power was lost, or a COMMIT failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import CommitOutcomeUnknown, StoreCorrupt, StoreFull, StoreIOError
from engine.ports import Transaction
from engine.records import EventRow, SessionRow
from engine.store.batch import Item
from sim.disk.database import DiskDatabase, database_of
from sim.disk.driver import RefusingConnection
from sim.disk.files import Operation, Side
from sim.disk.loss import drawn
from sim.history import Commit, PowerLoss
from sim.ledger import Moment
from sim.scenario import Disk, Fault, Node, Scenario
from sim.tape import Tape

SESSION = SessionRow(
    session_id="s",
    title="",
    location=None,
    model="m",
    agent="a",
    system="",
    created=0,
    status="idle",
    deleted=False,
)


def event(seq: int) -> EventRow:
    """The event of that seq; its id says which."""
    return EventRow(
        event_id=f"evt_{seq}",
        session_id="s",
        seq=seq,
        type="poison",
        version=1,
        created=0,
        execution_id=None,
        data=b"x" * 300,
    )


def appending(seq: int) -> Item:
    """A work that writes one event."""

    def work(tx: Transaction) -> None:
        tx.put_session(SESSION)
        tx.append_event(event(seq))

    return Item(work=work)


class Store:
    """Commits events one by one, and notes each as the simulator's store does."""

    def __init__(self, spec: Disk | None = None) -> None:
        self.database = DiskDatabase(spec or Disk())
        self.seq = 0
        self.entry = 0

    def commit(self, writer: str = "a.1", works: int = 1) -> list[Item]:
        """One batch of so many events; each is as good as acknowledged if it is committed."""
        items = [appending(self.seq + nth) for nth in range(works)]
        self.database.run_batch(items, now_ms=lambda: 0, writer_id=writer)
        for item in items:
            self.database.note(item, self.made(writer))
            self.seq += 1
            self.entry += 1
        return items

    def made(self, writer: str) -> Commit:
        return Commit(
            entry=self.entry,
            true_ms=0.0,
            node=writer,
            task="t",
            label="append",
            now_ms=0,
            events=(event(self.seq),),
            claims=(),
        )

    def lose_power(self, how: str = "lost", tape: Tape | None = None) -> PowerLoss:
        loss = PowerLoss(name="dark", moment=Moment(entry=self.entry, true_ms=1.0, clocks={}), honest=True)
        self.database.lose_power(drawn(tape or Tape.fifo(), how), loss)  # type: ignore[arg-type]
        return loss

    def lose_power_at(self, operation: Operation, nth: int, side: Side, how: str = "lost") -> list[PowerLoss]:
        """Lose it in the middle of what comes; the loss, once it came."""
        losses: list[PowerLoss] = []
        seen = 0

        def hook(found: Operation, now: Side) -> None:
            nonlocal seen
            seen += (found, now) == (operation, side)
            if seen == nth and not losses:
                losses.append(self.lose_power(how))

        self.database.disk.hook = hook
        return losses

    def there(self) -> list[int]:
        return [row.seq for row in self.database.reader().events("s", -1, 1000)]

    def known(self) -> list[int]:
        return [row.seq for commit in self.database.history.commits for row in commit.events]


@pytest.fixture
def store() -> Iterator[Store]:
    """On a fresh disk."""
    store = Store()
    yield store
    store.database.close()


def test_it_has_the_engines_pragmas(store: Store) -> None:
    """WAL, FULL, and the scenario's checkpoints; OFF only where a scenario says so."""

    def pragma(name: str) -> object:
        return store.database.connection.execute(f"PRAGMA {name}").fetchall()[0][0]

    names = ("journal_mode", "synchronous", "fullfsync", "wal_autocheckpoint", "foreign_keys")
    assert [pragma(name) for name in names] == ["wal", 2, 1, 1000, 1]
    other = DiskDatabase(Disk(synchronous="off", checkpoint_pages=7))
    assert other.connection.execute("PRAGMA synchronous").fetchall() == [(0,)]
    assert other.connection.execute("PRAGMA wal_autocheckpoint").fetchall() == [(7,)]
    other.close()


def test_what_was_committed_survives_a_loss_between_commits(store: Store) -> None:
    """Nothing is lost, and the new connection goes on where the old one was."""
    store.commit()
    store.commit("b.1", works=2)
    loss = store.lose_power()
    assert (loss.lost, loss.survived, loss.wrong) == ([], [], [])
    assert store.there() == store.known() == [0, 1, 2]
    store.commit("a.2")
    assert store.there() == [0, 1, 2, 3]


def test_a_commit_that_power_ended_is_unknown_to_its_caller_and_gone_from_the_history(store: Store) -> None:
    """The caller can't be told; the history follows what the disk kept."""
    store.commit()
    (loss,) = [store.lose_power_at("sync", 1, "before")]
    (item,) = store.commit()
    assert isinstance(item.error, CommitOutcomeUnknown)
    assert store.there() == store.known() == [0]
    assert [(len(one.lost), one.survived) for one in loss] == [(1, [])]


@pytest.mark.parametrize(("side", "how"), [("after", "lost"), ("before", "kept")])
def test_a_commit_that_survived_unknown_to_its_caller_is_in_the_history(
    store: Store, side: Side, how: str
) -> None:
    """Its caller never learned of it, and yet it is part of the log that exists."""
    store.commit()
    losses = store.lose_power_at("sync", 1, side, how)
    (item,) = store.commit()
    assert isinstance(item.error, CommitOutcomeUnknown)
    assert store.there() == store.known() == [0, 1]
    assert [commit.entry for commit in losses[0].survived] == [1]
    assert losses[0].lost == losses[0].wrong == []


def test_commits_that_were_never_synced_are_lost_and_forgotten() -> None:
    """With `synchronous = off` a loss takes what was acknowledged, and says which."""
    store = Store(Disk(synchronous="off"))
    store.commit(works=2)
    store.commit("b.1")
    loss = store.lose_power()
    assert [commit.entry for commit in loss.lost] == [0, 1, 2]
    assert loss.honest
    assert store.there() == store.known() == []
    store.database.close()


def test_a_lying_sync_makes_the_disk_dishonest(store: Store) -> None:
    """What is lost then is no breach, and the loss says so."""
    store.commit()
    store.database.disk.lying += 1
    store.commit()
    store.database.disk.stop_lying()
    loss = store.lose_power()
    assert not loss.honest
    assert [commit.entry for commit in loss.lost] == [1]
    assert store.there() == store.known() == [0]


def test_a_database_that_is_damaged_is_told_and_can_still_be_looked_at() -> None:
    """It can't be opened, or SQLite finds damage: then what was seen last is there for those who look."""
    store = Store(Disk(checkpoint_pages=1))
    store.database.disk.lying += 1
    for _ in range(3):
        store.commit()
    file = store.database.disk.files["fencepost.db"]
    loss = PowerLoss(name="dark", moment=Moment(entry=9, true_ms=1.0, clocks={}), honest=True)
    store.database.lose_power(lambda changes: [one for one in changes if one in file.unsynced][::2], loss)
    assert store.database.damage is not None
    assert loss.wrong == [f"the database couldn't be used any more: {store.database.damage}"]
    assert store.there() == [0, 1, 2]
    store.database.close()


def test_a_gap_in_what_survived_is_told(store: Store) -> None:
    """Commits are gone from the end only; a mark that says otherwise is a breach."""
    store.commit()
    store.commit("b.1")
    store.database.connection.execute("UPDATE writer_mark SET mark = 0 WHERE writer_id = 'a.1'")
    loss = store.lose_power()
    assert loss.wrong == [
        "a.1's commit of poison was gone, and b.1's commit of poison, which came later, was there",
        "a.1's commit of poison was gone, but its event poison was there",
    ]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_syncs_that_fail_leave_history_and_database_agreed(store: Store, times: int) -> None:
    """However many syncs fail, whatever the caller is told: the history is the log."""
    store.commit()
    store.database.disk.failing["sync"] = times
    (item,) = store.commit()
    if times == 1:
        assert isinstance(item.error, StoreIOError)
        assert not item.committed
    store.database.disk.failing.clear()
    store.seq = len(store.there())
    store.commit()
    assert store.there() == store.known() == list(range(store.seq))


def test_a_full_disk_fails_the_commit_and_nothing_else(store: Store) -> None:
    """Known to be not applied; once there is room, the next one is."""
    store.commit()
    store.database.disk.full += 1
    (item,) = store.commit()
    assert isinstance(item.error, StoreFull)
    store.database.disk.free()
    store.seq = 1
    store.commit()
    assert store.there() == store.known() == [0, 1]


def test_faults_strike_nodes_and_never_the_simulator(store: Store) -> None:
    """A node's read meets the error, the simulator's own look doesn't."""
    store.commit()
    store.database.disk.failing["read"] = 1
    assert store.there() == [0]
    with pytest.raises(StoreIOError):
        store.database.read(lambda reader: reader.latest_seq("s"))
    assert store.database.read(lambda reader: reader.latest_seq("s")) == 0


def test_a_connection_that_cant_be_opened_anew_is_opened_later(store: Store) -> None:
    """While nothing can be read, each batch fails with the reason; afterwards all is as before."""
    store.commit()
    store.database.disk.failing.update(sync=1, read=50)
    store.commit()
    store.seq = 1
    assert isinstance(store.commit()[0].error, StoreIOError | StoreCorrupt)
    store.database.disk.failing.clear()
    store.seq = len(store.there())
    store.commit()
    assert store.there() == store.known()


def test_a_driver_that_can_refuse_is_used_where_a_fault_needs_it() -> None:
    """A scenario without such faults has SQLite's own connection, in memory or on the disk."""
    fault = Fault(kind="store_error", node="a", inside="begin", at_s=0.0)
    for disk in (None, Disk()):
        for faults, driver in (((), apsw.Connection), ((fault,), RefusingConnection)):
            scenario = Scenario(proves="x", name="x", nodes=(Node(name="a"),), disk=disk, faults=faults)
            database = database_of(scenario)
            assert type(database.connection) is driver
            assert isinstance(database, DiskDatabase) is (disk is not None)
            database.close()


BATCHES = st.lists(st.tuples(st.sampled_from(["a.1", "b.1"]), st.integers(1, 3)), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(
    batches=BATCHES,
    operation=st.sampled_from(["write", "sync"]),
    nth=st.integers(1, 40),
    side=st.sampled_from(["before", "after"]),
    how=st.sampled_from(["lost", "kept", "some", "torn"]),
    checkpoint=st.sampled_from([1, 5, 1000]),
)
def test_whenever_power_goes_history_and_log_agree(
    batches: Sequence[tuple[str, int]], operation: Operation, nth: int, side: Side, how: str, checkpoint: int
) -> None:
    """What was acknowledged is there, the rest of the log is a beginning of what was tried, and the history
    holds just what the log does."""
    store = Store(Disk(checkpoint_pages=checkpoint))
    losses = store.lose_power_at(operation, nth, side, how)
    acknowledged = 0
    for writer, works in batches:
        items = store.commit(writer, works)
        if losses:
            break
        acknowledged += len(items)
    assert store.there() == store.known() == list(range(len(store.there())))
    assert acknowledged <= len(store.there())
    for loss in losses:
        assert loss.wrong == []
        assert all(commit.entry >= acknowledged for commit in loss.lost)
    store.database.close()
