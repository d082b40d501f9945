"""The simulator's store: injected errors, and what other nodes hear."""

from __future__ import annotations

import pytest

from engine.errors import CommitOutcomeUnknown, StoreIOError
from sim.kernel import NS_PER_MS
from sim.store import InjectedError
from tests.contracts.store_cases import Recorder, append
from tests.sim.store_world import World, suppressed, writing

# --- injected errors ---------------------------------------------------------------------------------


def faulty(world, verdicts):
    asked = []

    def prepare(world):
        def faults(node, writes):
            asked.append((node.name, tuple(writes)))
            return verdicts.pop(0) if verdicts else None

        world.stores["a"].faults = faults

    world.prepare = prepare
    return asked


def test_an_injected_error_that_is_not_applied():
    """The caller gets an error of its own, memory and database stay as they were, and health tells."""
    world, log, memory = World(store_draws=[1]), [], []
    error = StoreIOError("sick disk")
    asked = faulty(world, [InjectedError(error=error)])
    errors, healths = [], []

    async def client(store):
        for after in (True, False):
            try:
                log.append(await store.write(append(), memory.append, label="w"))
            except StoreIOError as exc:
                assert after
                errors.append(exc)
            healths.append(store.health().error)

    world.run(("a", "c1", client), ("a", "c2", client))
    assert log == memory == world.seqs() == [0, 1]
    assert len({id(exc) for exc in [*errors, error]}) == 3
    assert [str(exc) for exc in errors] == ["sick disk"] * 2
    assert healths[0] == "StoreIOError: sick disk"
    assert healths[-1] is None
    assert asked[0] == ("a", ("w", "w"))
    assert [entry.kind for entry in world.entries("commit", "refused")] == ["refused"] * 2 + ["commit"] * 2


def test_an_injected_error_that_is_applied():
    """The commit stands, its caller can't know, the hop doesn't run, and every node's doorbell rings."""
    world, memory = World(nodes="ab"), []
    faulty(world, [InjectedError(error=StoreIOError("sick disk"), applied=True)])
    heard = {name: Recorder() for name in "ab"}
    prepare = world.prepare

    def prepare_both(world):
        prepare(world)
        for name in "ab":
            world.stores[name].observe(heard[name])

    world.prepare = prepare_both

    async def client(store):
        with pytest.raises(CommitOutcomeUnknown) as caught:
            await store.write(append(), memory.append)
        assert isinstance(caught.value.__cause__, StoreIOError)

    world.run(("a", "client", client))
    assert world.seqs() == [0]
    assert memory == []
    assert heard["a"].notes == heard["b"].notes == [("changed_elsewhere",)]
    assert len(world.database.history.commits) == 1
    assert "committed" not in [entry.label for entry in world.entries("gate")], (
        "its window needs a known commit"
    )


def test_what_was_only_tried_out_is_not_recorded():
    """A work that an injected error kept from running is traced without the events of its trial."""
    world = World()
    faulty(world, [InjectedError(error=StoreIOError("sick disk"))])
    prepare = world.prepare

    def prepare_peek(world):
        prepare(world)
        world.stores["a"].peek = True

    world.prepare = prepare_peek
    world.run(("a", "client", suppressed(writing())))
    assert [entry.fields["events"] for entry in world.entries("refused")] == [()]


# --- doorbells ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("draw", "late_ms"), [(0, 0), (1, 10), (3, 50)])
def test_other_nodes_hear_of_a_commit_later(draw, late_ms):
    """Another node's observers are told that something changed, after a drawn delay; its own aren't."""
    world, heard = World(nodes="ab", store_draws=[draw]), []

    class Listener(Recorder):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def committed(self, stored):
            heard.append((self.name, "committed", world.kernel.now_ms))

        def changed_elsewhere(self):
            heard.append((self.name, "changed", world.kernel.now_ms))

    def prepare(world):
        for name in "ab":
            world.stores[name].observe(Listener(name))

    world.prepare = prepare
    world.run(("a", "client", writing()))
    assert heard == [("a", "committed", 0), ("b", "changed", late_ms)]


def test_doorbells_coalesce():
    """Several commits before the bell is heard ring once; one that comes later rings again."""
    world, heard = World(nodes="ab", store_draws=[3, 0]), []
    recorder = Recorder(heard)

    async def client(store):
        for _ in range(3):
            await store.write(append())
        await world.kernel.sleep_until(200 * NS_PER_MS, node=store._node)
        await store.write(append())

    world.prepare = lambda world: world.stores["b"].observe(recorder)
    world.run(("a", "client", client))
    assert heard == [("changed_elsewhere",)] * 2


def test_nobody_rings_at_a_dead_node():
    """A dead node's observers hear nothing."""
    world, heard = World(nodes="ab"), []

    def prepare(world):
        world.stores["b"].observe(Recorder(heard))
        world.kernel.at(5 * NS_PER_MS, lambda: world.kernel.kill(world.stores["b"]._node))

    async def client(store):
        await store.write(append())
        await world.kernel.sleep_until(9 * NS_PER_MS, node=store._node)
        await store.write(append())

    world.prepare = prepare
    world.run(("a", "client", client))
    assert heard == [("changed_elsewhere",)]
