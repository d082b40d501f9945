"""Stopping nodes, and the end of their world."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from sim.gate import NodeState, PowerCut, SimulationError
from sim.kernel import NS_PER_MS
from sim.roster import acting_as
from tests.sim.kernel_runs import kernel

ROOT = Path(__file__).parents[2]


# --- stopping nodes ----------------------------------------------------------------------------------


def test_a_paused_node_is_not_chosen():
    """Neither gates nor timers of a paused node happen until it goes on; then overdue ones do."""
    k = kernel()
    seen = []

    async def main():
        a = k.add_node("a")

        async def sleeper():
            await k.sleep_until(10 * NS_PER_MS, node=a)
            seen.append(("slept", k.now_ms))

        k.at(12 * NS_PER_MS, lambda: seen.append(("timer", k.now_ms)), node=a)
        k.at(5 * NS_PER_MS, lambda: k.pause(a))
        k.at(50 * NS_PER_MS, lambda: k.resume(a))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper, name="sleeper")
            await k.sleep_until(20 * NS_PER_MS, node=k.world)
            seen.append(("world", k.now_ms))
        await k.gate("last", node=k.world)

    k.run(main)
    assert seen == [("world", 20), ("slept", 50), ("timer", 50)]


def test_a_killed_node_runs_no_code():
    """After a power cut no task of the node runs until the world is frozen; then they unwind in vain."""
    k = kernel()
    log = []

    async def main():
        a = k.add_node("a")

        async def worker(nth):
            try:
                while True:
                    await k.sleep_until(k.now_ns + nth * NS_PER_MS, node=a)
                    log.append(("ran", k.now_ms))
            finally:
                log.append("unwinding")
                with pytest.raises((PowerCut, trio.Cancelled)):
                    await k.gate("cleanup", node=a)
                with pytest.raises(PowerCut):
                    k.note("ids", a, "new")
                with pytest.raises(PowerCut):
                    k.open_gate("more", node=a)
                log.append("refused")

        k.at(int(3.5 * NS_PER_MS), lambda: k.kill(a))
        k.at(3 * NS_PER_MS, lambda: log.append("a dead node's timer"), node=a).move(9 * NS_PER_MS)
        with k.ending():
            async with trio.open_nursery() as nursery:
                for nth in (1, 2):
                    nursery.start_soon(worker, nth, name=f"worker {nth}")
                await k.sleep_until(20 * NS_PER_MS, node=k.world)
                log.append("frozen")
                k.freeze(nursery.cancel_scope)
        assert a.state is NodeState.DEAD
        return "result"

    assert k.run(main) == "result"
    assert log[:5] == [("ran", 1), ("ran", 2), ("ran", 2), ("ran", 3), "frozen"]
    assert sorted(log[5:]) == ["refused", "refused", "unwinding", "unwinding"]


def test_nothing_of_a_dead_node_becomes_choosable():
    """Neither a cancellation nor a moment that comes wakes a dead node's sleepers and timers."""
    k = kernel()
    log = []

    async def main():
        a = k.add_node("a")
        scope = trio.CancelScope()

        async def victim():
            with scope:
                await k.sleep_until(5 * NS_PER_MS, node=a)
            log.append("ran")

        async def cancelled():
            with scopes[0]:
                await k.sleep_until(50 * NS_PER_MS, node=a)
            log.append("ran after its cancellation")

        scopes = [trio.CancelScope()]
        k.at(NS_PER_MS, lambda: k.kill(a))
        k.at(5 * NS_PER_MS, lambda: log.append("world"))
        k.at(5 * NS_PER_MS, lambda: log.append("dead"), node=a, label="a")
        with k.ending():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(victim, name="victim")
                nursery.start_soon(cancelled, name="cancelled")
                await k.sleep_until(3 * NS_PER_MS, node=k.world)
                scopes[0].cancel()
                await k.sleep_until(9 * NS_PER_MS, node=k.world)
                log.append("end")
                k.freeze(nursery.cancel_scope)

    k.run(main)
    assert log[:2] == ["world", "end"]


def test_freezing_ends_shielded_and_swallowing_tasks():
    """Frozen tasks unwind through shields, gates without cancellation, and `except Exception`."""
    k = kernel()

    async def main():
        a = k.add_node("a")

        async def shielded():
            with trio.CancelScope(shield=True) as scope:
                a.shields[scope] = None
                await trio.sleep_forever()

        async def stubborn():
            while True:
                try:
                    await k.gate("x", node=a, deliver_cancel=False)
                    await k.open_gate("y", node=a, deliver_cancel=False, asleep=True).wait()
                except Exception:
                    continue

        with k.ending():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(shielded, name="shielded")
                nursery.start_soon(stubborn, name="stubborn")
                await k.sleep_until(NS_PER_MS, node=k.world)
                k.freeze(nursery.cancel_scope)
                count = k.trace.count
        k.trace.record("more", "world.0", "main", "x")
        return count

    assert k.run(main) == k.trace.count


def test_a_frozen_world_that_does_not_unwind_is_reported():
    """A task that stays behind a shield nobody knows of is named, and the run ends.

    In a process of its own, since Trio has to abandon such a task.
    """
    script = """
import trio
from sim.kernel import Kernel
from sim.tape import Tape
from sim.trace import Trace

async def main():
    with trio.CancelScope(shield=True):
        k.freeze()
        await trio.sleep(3)
        await trio.sleep_forever()

k = Kernel(Tape.fifo(), Trace())
try:
    k.run(main)
except Exception as exc:
    print(type(exc).__name__, k.now_ms, exc)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("SimulationError 3000.0 the world is frozen, but these tasks don't unwind")


def test_killing_when_parked_waits_for_runnable_tasks():
    """Asked for by a task, the kill comes once every task has parked, and before anything is chosen."""
    k = kernel()
    log = []

    async def main():
        a, b = k.add_node("a"), k.add_node("b")

        async def victim():
            with k.ending():
                await k.gate("one", node=a)
                event.set()
                await k.gate("two", node=a)
                log.append("victim went on")

        async def killer():
            await event.wait()
            k.kill_when_parked(a)
            await k.gate("x", node=b)
            log.append(a.state)

        event = trio.Event()
        with k.ending():
            async with trio.open_nursery() as nursery:
                with acting_as(a):
                    nursery.start_soon(victim, name="victim")
                with acting_as(b):
                    nursery.start_soon(killer, name="killer")
                await k.sleep_until(NS_PER_MS, node=k.world)
                k.freeze(nursery.cancel_scope)

    k.run(main)
    assert log == [NodeState.DEAD]


def test_a_kill_outside_the_clock_is_refused():
    """A node can't be killed while a task runs, since it might be one of its own."""
    k = kernel()

    async def main():
        with pytest.raises(AssertionError, match="killed from the clock"):
            k.kill(k.add_node("a"))

    k.run(main)


def test_code_of_a_dead_node_that_runs_is_reported():
    """If something woke a dead node's task, the run ends with its name."""
    k = kernel()

    async def main():
        a = k.add_node("a")
        event = trio.Event()

        async def victim():
            await k.gate("one", node=a)
            await event.wait()
            await k.gate("two", node=a)

        k.at(NS_PER_MS, lambda: k.kill(a))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(victim, name="victim")
            await k.sleep_until(2 * NS_PER_MS, node=k.world)
            event.set()
            await trio.sleep_forever()

    with pytest.raises(SimulationError, match=r"a.1/victim runs although the node is dead"):
        k.run(main)


def test_incarnations_are_counted():
    """A node that comes back is a new one, and its keys differ from those before."""
    k = kernel()
    first, other, second = k.add_node("a"), k.add_node("b"), k.add_node("a")
    assert [node.key for node in (first, other, second)] == ["a.1", "b.1", "a.2"]


def test_notes_keep_their_moment():
    """A synchronous port's entry is written at the task's next gate, under the time of the call."""
    k = kernel()

    async def main():
        k.note("ids", k.world, "new", value=1)
        await trio.sleep(0.5)
        await k.gate("x", node=k.world)
        k.note("ids", k.world, "new", value=2)

    k.run(main)
    rows = [(entry.kind, entry.true_ms, entry.fields.get("value")) for entry in k.trace.entries]
    assert rows == [("ids", 0, 1), ("gate", 500, None), ("ids", 500, 2)]
