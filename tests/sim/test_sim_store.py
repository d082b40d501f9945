"""The simulator's store: its windows, its cancellations, its batches."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ClaimLost, StoreClosed
from engine.ports import Store
from engine.store.batch import Item
from sim.clock import NodeClock
from sim.database import SimDatabase
from sim.gate import PowerCut
from sim.kernel import NS_PER_MS, Kernel
from sim.store import SimStore
from sim.tape import Tape
from sim.trace import Trace
from tests.contracts.store_cases import Recorder, append, event_row, seqs, stored
from tests.sim.store_world import World, writing

# --- windows and stopping ----------------------------------------------------------------------------


def test_a_write_passes_its_windows_in_order():
    """Queued, then committed, then the hop, then the caller: each with a gate between."""
    world, order = World(), []
    recorder = Recorder(order)

    def prepare(world):
        world.stores["a"].observe(recorder)
        world.kernel.on_park = lambda gate: (
            order.append((gate.info["window"], world.seqs())) if "window" in gate.info else None
        )

    world.prepare = prepare

    async def client(store):
        order.append(("value", await store.write(append(), lambda value: order.append(("after", value)))))

    world.run(("a", "client", client))
    assert order == [
        ("before_commit", []),
        ("after_commit", [0]),
        ("after", 0),
        ("committed", ["evt_ses_a_0"]),
        ("value", 0),
    ]


def test_windows_name_the_events():
    """After a commit its events are told by type, session and message; before it, when peeking is on."""
    for peek in (False, True):
        world, told = World(store_draws=[1]), []

        def prepare(world, peek=peek, told=told):
            world.stores["a"].peek = peek
            world.kernel.on_park = lambda gate: (
                told.append((gate.info["window"], gate.info["events"], gate.info["writes"]))
                if "window" in gate.info
                else None
            )

        world.prepare = prepare
        world.run(("a", "c1", writing("ses_a")), ("a", "c2", writing("ses_b")))
        events = (("session.renamed", "ses_a", None), ("session.renamed", "ses_b", None))
        writes = ("append ses_a", "append ses_b")
        assert told == [
            ("before_commit", events if peek else (), writes),
            ("after_commit", events, writes),
        ]


def test_peeking_changes_nothing():
    """Works that were run to see their events leave nothing behind, failing ones included."""
    world, outcomes = World(store_draws=[2]), []

    def failing(tx):
        tx.append_event(event_row("ses_x", 0))
        raise ClaimLost("no")

    async def client(store):
        with pytest.raises(ClaimLost):
            await store.write(failing)

    def prepare(world):
        world.stores["a"].peek = True
        world.on_window("before_commit", lambda gate: outcomes.append((gate.info["events"], world.seqs())))

    world.prepare = prepare
    world.run(("a", "c1", writing()), ("a", "c2", client), ("a", "c3", writing()))
    assert outcomes == [(((("session.renamed", "ses_a", None)),) * 2, [])]
    assert world.seqs() == [0, 1]
    assert world.seqs("ses_x") == []


def test_a_trial_takes_back_each_work_that_fails():
    """A work after a failing one doesn't see what that one wrote, and in the end nothing is there."""
    database = SimDatabase()

    def failing(tx):
        append()(tx)
        raise ClaimLost("no")

    done = database.try_out([Item(work=work) for work in (append(), failing, append())], now_ms=lambda: 7)
    assert [(tx.now_ms, tx.told[0].seq) for tx in done] == [(7, 0), (7, 1)]
    assert seqs()(database.reader()) == []
    database.close()


@pytest.mark.parametrize(
    ("window", "committed"), [("before_commit", []), ("after_commit", [0])], ids=["before", "after"]
)
def test_a_power_cut_in_a_window(window, committed):
    """Before the commit nothing is applied; after it the event stays, but the hop never runs."""
    world, memory, log = World(nodes="ab"), [], []

    def prepare(world):
        world.stores["a"].observe(Recorder(memory))
        world.on_window(window, lambda gate: world.kernel.kill(gate.node))

    world.prepare = prepare
    world.run(("a", "client", writing(after=memory.append, log=log)))
    assert world.seqs() == committed
    assert memory == []
    assert log in (["PowerCut"], ["Cancelled"]), "the caller never heard of an outcome"


def test_a_held_commit_lets_others_go_first():
    """A held `before_commit` gate comes after everything else that can happen now."""
    world, log = World(nodes="ab"), []
    world.prepare = lambda world: world.on_window("before_commit", lambda gate: gate.hold())

    async def other(store):
        for _ in range(3):
            await store.read(seqs())
        log.append("read")

    world.run(("a", "client", writing(log=log)), ("b", "reader", other))
    assert log == ["read", 0]


def test_a_stalled_node_commits_later():
    """A node paused between commit and hop goes on with the hop when it is resumed."""
    world, times = World(nodes="ab"), []

    def stall(gate):
        world.kernel.pause(gate.node)
        world.kernel.at(500 * NS_PER_MS, lambda: world.kernel.resume(gate.node))

    world.prepare = lambda world: world.on_window("after_commit", stall)
    world.run(("a", "client", writing(after=lambda seq: times.append((seq, world.kernel.now_ms)))))
    assert times == [(0, 500)]


# --- cancellation ------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9), max_size=40), st.lists(st.integers(0, 3), max_size=10))
def test_cancelled_writes_happen_whole_or_not_at_all(draws, store_draws):
    """Under every schedule: a value means applied, a cancellation means not, and memory agrees."""
    world, memory, values, cancelled = World(*draws, store_draws=store_draws), [], [], []

    async def writer(store):
        with trio.CancelScope() as scope:
            scopes.append(scope)
            values.append(await store.write(append(), memory.append))
        if scope.cancelled_caught:
            cancelled.append(1)

    async def canceller(store):
        await world.kernel.gate("cancel", node=store._node)
        for scope in scopes:
            scope.cancel()

    scopes = []
    world.run(*[("a", f"w{n}", writer) for n in range(4)], ("a", "z", canceller))
    assert world.seqs() == memory == sorted(values)
    assert len(values) + len(cancelled) == 4


def test_a_write_that_was_withdrawn_leaves_the_queue():
    """A caller cancelled while its write is queued takes it back, and the others are committed."""
    world, log = World(), []
    scopes = {}

    async def client(store, name):
        with trio.CancelScope() as scopes[name]:
            await writing(log=log)(store)

    def cancel(gate):
        gate.hold()
        scopes["c1"].cancel()

    world.prepare = lambda world: world.on_window("before_commit", cancel)
    clients = [("a", name, lambda store, name=name: client(store, name)) for name in ("c1", "c2")]
    world.run(*clients)
    assert log == ["Cancelled", 0]
    assert world.seqs() == [0]


def test_no_cancellation_between_taking_and_outcome():
    """Cancelled after the commit, a caller still gets its value, and the hop has run."""
    world, log = World(), []
    scope = trio.CancelScope()

    async def client(store):
        with scope:
            await writing(after=lambda seq: log.append(("after", seq)), log=log)(store)
            await world.kernel.gate("next", node=store._node)
            log.append("never")

    def cancel(gate):
        gate.hold()
        scope.cancel()

    world.prepare = lambda world: world.on_window("after_commit", cancel)
    world.run(("a", "client", client))
    assert log == [("after", 0), 0]


def test_closing_fails_what_is_queued():
    """When the writer is cancelled, queued writes fail with nothing applied, and later ones are refused."""
    kernel = Kernel(Tape.fifo(), Trace())
    outcomes = []

    async def client(store):
        for _ in range(2):
            with pytest.raises(StoreClosed):
                await store.write(append())
            outcomes.append(store.health().writable)
        with pytest.raises(StoreClosed):
            await store.read(seqs())

    async def main():
        node = kernel.add_node("a")
        store = SimStore(SimDatabase(), kernel, node, NodeClock(kernel, node))
        async with trio.open_nursery() as outer, trio.open_nursery() as inner:
            store.start(inner)
            outer.start_soon(client, store, name="client")

            def hook(gate):
                if gate.info.get("window"):
                    inner.cancel_scope.cancel()

            kernel.on_park = hook

    kernel.run(main)
    assert outcomes == [False, False]


def test_closing_between_commit_and_hop_comes_after_the_hop():
    """A writer cancelled while its commit isn't told yet finishes the hop first."""
    kernel = Kernel(Tape.fifo(), Trace())
    log = []

    async def main():
        node = kernel.add_node("a")
        store = SimStore(SimDatabase(), kernel, node, NodeClock(kernel, node))
        async with trio.open_nursery() as nursery:
            store.start(nursery)

            def hook(gate):
                if gate.info.get("window") == "after_commit":
                    nursery.cancel_scope.cancel()

            kernel.on_park = hook
            log.append(await store.write(append(), lambda seq: log.append(("after", seq))))

    kernel.run(main)
    assert log == [("after", 0), 0]


# --- batches -----------------------------------------------------------------------------------------


def labels(world):
    return [(entry.kind, entry.label) for entry in world.entries("commit", "gate") if entry.label != "write"]


@pytest.mark.parametrize(("size", "batches"), [(0, [1, 1, 1]), (1, [2, 1]), (2, [3])])
def test_the_batch_size_is_a_draw(size, batches):
    """The default is one work per commit; a greater draw takes that many more."""
    world = World(store_draws=[size])
    taken = []
    world.kernel.on_park = lambda gate: (
        taken.append(len(gate.info["writes"])) if gate.label == "committed" else None
    )
    world.run(*[("a", f"c{n}", writing(f"ses_{n}")) for n in range(3)])
    assert taken == batches


def test_writes_are_taken_in_the_order_of_their_gates():
    """Callers that queued together, in whatever order of Trio's, are committed by task name."""
    for _ in range(10):
        world = World()
        start = trio.Event()

        async def client(store, n, start=start):
            await start.wait()
            await store.write(append(), label=str(n))

        async def starter(store, world=world, start=start):
            await world.kernel.gate("go", node=store._node)
            start.set()

        clients = [("a", f"c{n}", lambda store, n=n, client=client: client(store, n)) for n in range(8)]
        world.run(*clients, ("a", "z", starter))
        assert [commit.label for commit in world.database.history.commits] == list("01234567")


def test_a_frozen_store_refuses():
    """Once the world is frozen neither verb does anything."""
    world, log = World(), []

    async def client(store):
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                for verb in (lambda: store.write(append()), lambda: store.read(seqs())):
                    with pytest.raises(PowerCut):
                        await verb()
                    log.append("refused")

    world.run(("a", "client", client))
    assert log == ["refused"] * 2
    assert world.seqs() == []


def test_the_double_has_the_ports_shape():
    """The simulator's store stands in for the engine's own."""
    kernel = Kernel(Tape.fifo(), Trace())
    node = kernel.add_node("a")
    store: Store = SimStore(SimDatabase(), kernel, node, NodeClock(kernel, node))
    assert store.health().queued == 0
    assert stored("ses_a", 0).type == "session.renamed"
