"""The simulated ids and jitter."""

from __future__ import annotations

import trio

from engine.ports import Chance, Ids
from sim.ids import SimChance, SimIds, draw_salt
from sim.kernel import Kernel
from sim.tape import Tape
from sim.trace import Trace


def draws_of(salt_tape, *, names=("one", "two"), incarnations=1):
    """All the ids and fractions drawn by tasks that woke together, on two nodes."""
    k = Kernel(salt_tape, Trace())
    salt = draw_salt(salt_tape)
    got = {}

    async def draw(node, ids, chance, event, name):
        await event.wait()
        got[node.key, name] = [ids.new("msg"), ids.new("msg"), chance.fraction(), chance.fraction()]

    async def main():
        event = trio.Event()
        async with trio.open_nursery() as nursery:
            for node_name in "ab":
                for _ in range(incarnations):
                    node = k.add_node(node_name)
                    ids, chance = SimIds(k, node), SimChance(k, node, salt)
                    for name in names:
                        nursery.start_soon(draw, node, ids, chance, event, name, name=name)
            await k.gate("go", node=k.world)
            event.set()

    k.run(main)
    return got, k.trace.digest()


def test_ids_and_jitter_do_not_follow_the_order_of_waking():
    """Tasks that woke together get the same ids and fractions in every run."""
    results = [draws_of(Tape.seeded(4)) for _ in range(20)]
    assert all(result == results[0] for result in results)


def test_ids_are_unique_and_readable():
    """No two ids are equal, over tasks, nodes and incarnations; each begins with its prefix and node."""
    got, _ = draws_of(Tape.fifo(), names=[f"task {nth}" for nth in range(50)], incarnations=2)
    ids = [value for values in got.values() for value in values[:2]]
    assert len(set(ids)) == len(ids) == 400
    assert got["a.1", "task 0"][0].startswith("msg_a.1_")


def test_jitter_is_none_by_default_and_spread_by_a_seed():
    """The default tape gives one half each time; a seed gives fractions below 1 that differ."""
    plain, _ = draws_of(Tape.fifo())
    assert {value for values in plain.values() for value in values[2:]} == {0.5}
    spread = [value for values in draws_of(Tape.seeded(1))[0].values() for value in values[2:]]
    assert len(set(spread)) == len(spread)
    assert all(0 <= value < 1 for value in spread)
    assert spread != [value for values in draws_of(Tape.seeded(2))[0].values() for value in values[2:]]


def test_the_doubles_have_the_ports_shape():
    """Ids and jitter stand in for the engine's own."""
    k = Kernel(Tape.fifo(), Trace())
    ports: tuple[Ids, Chance] = (SimIds(k, k.world), SimChance(k, k.world, 0))
    assert ports[0].new("x").startswith("x_world.0_")
    assert ports[1].fraction() == 0.5
