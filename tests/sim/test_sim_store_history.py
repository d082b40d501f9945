"""What the simulator's store records, and its reproducibility."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ClaimLost, StoreIOError
from engine.store.batch import Item
from engine.store.transaction import SqliteTransaction
from sim.database import SimDatabase
from sim.history import ClaimSeen, Commit, History
from sim.history import Recorder as Recorded
from sim.kernel import NS_PER_MS
from sim.store import InjectedError
from sim.tape import Tape
from sim.trace import explain, first_difference
from tests.contracts.store_cases import append, claim_row, event_row, seqs, session_row
from tests.sim.store_world import World, suppressed

ROOT = Path(__file__).parents[2]


# --- trace and history -------------------------------------------------------------------------------


def claiming(**changes):
    def work(tx):
        tx.put_claim(claim_row("ses_a", **changes))
        return append("ses_a")(tx)

    return work


def test_each_commit_is_traced_whole():
    """The trace holds label, time, events, the claim row before and after, and what refused a work."""
    world = World()

    def refused(tx):
        append("ses_a")(tx)
        raise ClaimLost("exe_9 lost it")

    async def client(store):
        await store.write(lambda tx: tx.put_session(session_row("ses_a")), label="create")
        await store.write(claiming(version=1), label="acquire")
        await store.write(append("ses_a"), label="publish")
        with pytest.raises(ClaimLost):
            await store.write(refused, label="late")
        await store.write(lambda tx: tx.delete_claim("ses_a"), label="clear")

    world.run(("a", "client", client))
    row = claim_row("ses_a", version=1)
    entries = world.entries("commit", "refused")
    assert [(entry.kind, entry.label, entry.task) for entry in entries] == [
        ("commit", "create", "client"),
        ("commit", "acquire", "client"),
        ("commit", "publish", "client"),
        ("refused", "late", "client"),
        ("commit", "clear", "client"),
    ]
    assert [entry.fields["claims"] for entry in entries] == [
        (),
        (ClaimSeen(session_id="ses_a", before=None, after=row),),
        (ClaimSeen(session_id="ses_a", before=row, after=row),),
        (ClaimSeen(session_id="ses_a", before=row, after=row),),
        (ClaimSeen(session_id="ses_a", before=row, after=None),),
    ]
    assert entries[2].fields["events"] == (event_row("ses_a", 1),)
    assert {entry.fields["now_ms"] for entry in entries} == {9700}
    assert str(entries[3].fields["error"]) == "exe_9 lost it"
    commits = world.database.history.commits
    assert [commit.entry for commit in commits] == [entries[n].index for n in (0, 1, 2, 4)]
    assert [commit.node for commit in commits] == ["a.1"] * 4


def test_the_claim_history_answers():
    """The row just before an entry, at a moment, now, and the first change after an entry."""
    world = World()

    async def client(store):
        await store.write(lambda tx: tx.put_session(session_row("ses_a")))
        for version in (1, 2):
            await world.kernel.sleep_until(version * 100 * NS_PER_MS, node=store._node)
            await store.write(claiming(version=version))
        await store.write(append("ses_a"))
        await world.kernel.sleep_until(300 * NS_PER_MS, node=store._node)
        await store.write(lambda tx: tx.erase_session("ses_a"))

    world.run(("a", "client", client))
    history = world.database.history
    _, first, second, _, cleared = history.commits
    one, two = claim_row("ses_a", version=1), claim_row("ses_a", version=2)
    assert [history.claim_before("ses_a", commit.entry) for commit in (first, second, cleared)] == [
        None,
        one,
        two,
    ]
    assert [history.claim_at("ses_a", ms) for ms in (99, 100, 199.9, 250, 300)] == [None, one, one, two, None]
    assert history.first_change("ses_a", -1) == (first.entry, one)
    assert history.first_change("ses_a", first.entry) == (second.entry, two)
    assert history.first_change("ses_a", second.entry) == (cleared.entry, None)
    assert history.first_change("ses_a", cleared.entry) is None
    assert history.claim("ses_a") is None
    assert history.claim("ses_other") is None


@given(
    st.lists(st.tuples(st.sampled_from("xy"), st.none() | st.integers(0, 3)), max_size=12),
    st.integers(-1, 30),
)
def test_the_claim_history_equals_a_replay(changes, entry):
    """Whatever the changes, the row before an entry is the last one committed before it."""
    history, rows = History(), {}
    expected, follower = {}, {}
    for n, (session_id, version) in enumerate(changes):
        after = None if version is None else claim_row(session_id, version=version)
        before = rows.get(session_id)
        seen = ClaimSeen(session_id=session_id, before=before, after=after)
        commit = Commit(
            entry=2 * n, true_ms=float(n), node="a.1", task="t", label="", now_ms=0, events=(), claims=(seen,)
        )
        history.add(commit)
        rows[session_id] = after
        if 2 * n < entry:
            expected[session_id] = after
        elif 2 * n > entry and before != after:
            follower.setdefault(session_id, (2 * n, after))
    for session_id in "xy":
        assert history.claim_before(session_id, entry) == expected.get(session_id)
        assert history.first_change(session_id, entry) == follower.get(session_id)
        assert history.claim(session_id) == rows.get(session_id)


def test_a_template_is_copied_with_its_claims():
    """A database made from a template holds its rows, knows its claims, and leaves it alone."""
    template = SimDatabase()
    template.connection.execute("BEGIN")
    tx = SqliteTransaction(template.connection, now_ms=0)
    tx.put_session(session_row("ses_a"))
    tx.put_claim(claim_row("ses_a"))
    template.connection.execute("COMMIT")
    copy = SimDatabase(template.connection)
    assert copy.history.claim("ses_a") == claim_row("ses_a")
    copy.connection.execute("DELETE FROM execution_claim")
    assert template.reader().claim("ses_a") == claim_row("ses_a")
    template.close()
    copy.close()


def test_what_an_await_less_batch_saw_is_recorded_per_work():
    """In one batch each work's claim rows follow from the work before it."""
    world = World(store_draws=[0, 1])
    second = attrs.evolve(claim_row("ses_a"), version=2)

    async def create(store):
        await store.write(lambda tx: tx.put_session(session_row("ses_a")))
        await store.write(claiming(version=1))

    async def renew(store):
        await store.write(lambda tx: tx.put_claim(second))

    world.run(("a", "c1", create), ("a", "c2", renew))
    rows = [seen for commit in world.database.history.commits for seen in commit.claims]
    assert all(left.after == right.before for left, right in itertools.pairwise(rows))
    assert len(rows) == 2


def test_a_work_that_runs_again_is_recorded_once():
    """Only the latest run of a work counts."""
    database, recorder = SimDatabase(), Recorded()
    item = Item(work=recorder.wrap(append()))
    for now_ms in (1, 2):
        database.try_out([item], now_ms=lambda now_ms=now_ms: now_ms)
        assert recorder.events == [event_row("ses_a", 0)]
        assert recorder.now_ms == now_ms
    database.close()


def test_reads_are_traced_by_their_results():
    """What a read returned or raised counts in the digest; what has no canonical bytes by its type."""
    digests = set()
    for wrong in (0, 1):
        world = World()

        async def client(store, wrong=wrong):
            await store.read(lambda reader: reader.latest_seq("ses_a") + wrong)

        digests.add(world.run(("a", "client", client)).kernel.trace.digest())
    assert len(digests) == 2

    world = World()

    async def opaque(store):
        await store.read(lambda reader: object())
        with pytest.raises(ZeroDivisionError):
            await store.read(lambda reader: 1 // 0)
        await store.read(lambda reader: "x" * 1000)

    world.run(("a", "client", opaque))
    fields = [entry.fields for entry in world.entries("read")]
    assert fields[0]["value"] == "object"
    assert isinstance(fields[1]["error"], ZeroDivisionError)
    assert len(fields[2]["value"]) == 16


# --- reproducibility ---------------------------------------------------------------------------------


def storm(seed):
    """Three nodes that write, read, cancel, hold and fail, all at once; returns the world."""
    world = World(tape=Tape.seeded(seed), nodes="abc")

    async def client(store, nth):
        kernel, node = world.kernel, store._node
        for turn in range(6):
            session_id = f"ses_{(nth + turn) % 3}"
            with trio.CancelScope() as scope:
                kernel.at(kernel.now_ns + (nth * turn % 4) * NS_PER_MS, scope.cancel, node=node)
                await store.write(append(session_id), label=f"{nth} {turn}")
            await store.read(seqs(session_id))
            await kernel.sleep_until(kernel.now_ns + nth % 3 * NS_PER_MS, node=node)

    def prepare(world):
        def hook(gate):
            if "window" in gate.info and world.kernel.tape.draw("faults", "hold", 3) == 1:
                gate.hold()

        world.kernel.on_park = hook
        for store in world.stores.values():
            store.peek = True
            store.faults = lambda node, writes: (
                InjectedError(
                    error=StoreIOError("x"), applied=bool(world.kernel.tape.draw("faults", "applied", 2))
                )
                if world.kernel.tape.draw("faults", "commit", 8) == 7
                else None
            )

    world.prepare = prepare
    clients = [
        (name, f"{name}{n}", suppressed(lambda store, n=n: client(store, n)))
        for name in "abc"
        for n in range(4)
    ]
    return world.run(*clients)


@pytest.mark.parametrize("seed", range(6))
def test_one_tape_gives_one_run(seed):
    """Runs of one tape agree on every entry and on the database's content."""
    first = storm(seed)
    for _ in range(3):
        again = storm(seed)
        assert again.kernel.trace.digest() == first.kernel.trace.digest(), explain(
            first_difference(first.kernel.trace.entries, again.kernel.trace.entries)
        )
        for n in range(3):
            rows = [world.database.reader().events(f"ses_{n}", -1, 1000) for world in (first, again)]
            assert rows[0] == rows[1]


def test_one_tape_gives_one_run_in_every_process():
    """Fresh processes under other hash seeds give the digest of this one."""
    expected = storm(11).kernel.trace.digest()
    script = "from tests.sim.test_sim_store_history import storm; print(storm(11).kernel.trace.digest())"
    for hash_seed in ("0", "5", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected
