"""What ends a simulated run, and how it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from sim.gate import Deadlock, DuplicateTask, RealWait, RunTooLong, SimulationError
from sim.kernel import NS_PER_MS
from sim.roster import current_node
from tests.sim.kernel_runs import kernel, run_tasks, stepper

ROOT = Path(__file__).parents[2]


# --- what ends a run ---------------------------------------------------------------------------------


def test_a_deadlock_lists_who_waits_for_what():
    """When nothing can ever run again, the error names gates and native waits."""
    k = kernel()

    async def parked():
        await k.open_gate("answer", node=k.roster.nodes[-1], asleep=True).wait()

    async def native():
        await trio.Event().wait()

    with pytest.raises(Deadlock) as caught:
        run_tasks(k, ("asker", parked), ("listener", native))
    text = str(caught.value)
    assert "a.1/asker answer#1 waits to be woken" in text
    assert "listener waits in native (test_kernel_ends.py" in text


def test_a_deadlock_unwinds_every_task():
    """Shields and handlers don't keep a deadlocked run alive, and every `finally` runs."""
    k = kernel()
    unwound = []

    async def stubborn():
        node = k.roster.nodes[-1]
        try:
            with trio.CancelScope(shield=True) as scope:
                node.shields[scope] = None
                await trio.sleep_forever()
        finally:
            unwound.append("native")

    async def parked():
        try:
            await k.open_gate("x", node=k.roster.nodes[-1], deliver_cancel=False, asleep=True).wait()
        except Exception:
            unwound.append("swallowed")
        finally:
            unwound.append("parked")

    with pytest.raises(Deadlock):
        run_tasks(k, ("s", stubborn), ("p", parked))
    assert sorted(unwound) == ["native", "parked"]


def test_errors_in_the_clock_end_the_run():
    """An exception in a hook or a timer reaches the caller of `run`, not Trio's loop."""
    for plant in ("hook", "timer"):
        k = kernel()
        unwound = []

        def fail(*_):
            raise ZeroDivisionError("planted")

        if plant == "hook":
            k.on_park = fail
        else:
            k.at(0, fail)

        async def main(k=k, unwound=unwound):
            try:
                await k.sleep_until(NS_PER_MS, node=k.world)
            finally:
                unwound.append("main")

        with pytest.raises(ZeroDivisionError, match="planted"):
            k.run(main)
        assert unwound == ["main"]


def test_bounds_end_the_run():
    """Too many gates, too much virtual time and too many turns without a gate are clear errors."""

    async def gates(k):
        while True:
            await k.gate("again", node=k.world)

    async def sleeps(k):
        while True:
            await k.sleep_until(k.now_ns + 1000 * NS_PER_MS, node=k.world)

    async def spins(_):
        while True:
            await trio.lowlevel.checkpoint()

    for main, options, words in (
        (gates, {"gates_max": 50}, "more than 50 gates, the last is world.0"),
        (sleeps, {"time_ms_max": 9_500}, "virtual time would pass 9500 ms"),
        (spins, {"turns_max": 500}, "500 turns of the loop without a gate"),
    ):
        k = kernel(**options)
        with pytest.raises(RunTooLong, match=words):
            k.run(main, k)
    assert k.gates_chosen == 0


def test_the_run_ends_although_code_swallows_errors():
    """A bound holds against code that catches every `Exception` and tries again."""
    k = kernel(gates_max=50)

    async def stubborn():
        while True:
            try:
                await k.gate("again", node=k.world)
            except Exception:
                continue

    with pytest.raises(RunTooLong):
        k.run(stubborn)


def test_two_live_tasks_of_one_name_are_an_error():
    """Tasks that would race for one key are named, whether they park or only draw ids."""
    k = kernel()
    with pytest.raises(DuplicateTask, match=r"two live tasks of node a.1 are named 'twin'"):
        run_tasks(k, ("twin", stepper(k)), ("twin", stepper(k)))

    k = kernel()

    async def noter():
        k.note("ids", k.roster.nodes[-1], "new")
        await trio.sleep_forever()

    with pytest.raises(DuplicateTask, match="twin"):
        run_tasks(k, ("twin", noter), ("twin", noter))


def test_a_name_may_be_used_again():
    """A task may bear the name of one that has ended; its gates are counted on."""
    k = kernel()
    node = k.add_node("a")

    async def main():
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stepper(k, 1, node), name="worker")

    k.run(main)
    assert [entry.fields["nth"] for entry in k.trace.entries] == [1, 2]


def test_a_task_stays_on_its_node():
    """A node's task that uses another node's port ends the run, since killing its node wouldn't stop it."""
    k = kernel()
    other = k.add_node("b")
    with pytest.raises(SimulationError, match=r"task stray of node a.1 used a port of b.1"):
        run_tasks(k, ("stray", stepper(k, 1, other)), node=k.add_node("a"))


def test_tasks_inherit_their_node():
    """Tasks that a node's tasks start belong to that node, too."""
    k = kernel()
    seen = []

    async def child():
        seen.append(current_node())

    async def parent():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child, name="child")

    node = run_tasks(k, ("parent", parent))
    assert seen == [node]
    assert current_node() is None


def test_real_waits_end_the_run():
    """A thread or a socket inside a run is an error, not a race."""
    import socket

    async def thread():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, int)
            for _ in range(100):
                await k.gate("x", node=k.world)

    async def sockets():
        left, right = socket.socketpair()
        with left, right:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.lowlevel.wait_readable, left)
                for _ in range(100):
                    await k.gate("x", node=k.world)

    for main in (thread, sockets):
        k = kernel()
        with pytest.raises(RealWait):
            k.run(main)


def test_what_main_raises_reaches_the_caller():
    """An error of the simulated program is the caller's to see."""
    k = kernel()

    async def main():
        await k.gate("x", node=k.world)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        k.run(main)
