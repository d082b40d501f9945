"""Small runs of the kernel, for its tests."""

from __future__ import annotations

from pathlib import Path

import trio

from sim.kernel import Kernel
from sim.roster import acting_as
from sim.tape import Tape
from sim.trace import Trace

ROOT = Path(__file__).parents[2]


def kernel(tape=None, **options):
    return Kernel(tape or Tape.fifo(), Trace(), **options)


def run_tasks(k, *tasks, node=None):
    """Run `tasks` (name, async function) side by side on one node; returns the node."""
    node = node or k.add_node("a")

    async def main():
        async with trio.open_nursery() as nursery:
            with acting_as(node):
                for name, task in tasks:
                    nursery.start_soon(task, name=name)

    k.run(main)
    return node


def chosen(k):
    return [f"{entry.task} {entry.label}" for entry in k.trace.entries if entry.kind in ("gate", "timer")]


def stepper(k, count=2, node=None):
    async def task():
        for _ in range(count):
            await k.gate("step", node=node or k.roster.nodes[-1])

    return task
