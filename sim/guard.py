"""Looks at a run from outside: who waits for what, and whether anything waits for the real world."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

import trio

from sim.gate import Gate, Node, NodeState, RealWait

_LINES_MAX = 60


def runnable() -> int:
    """How many tasks would run next without the kernel's doing."""
    return trio.lowlevel.current_statistics().tasks_runnable


def alive(task: trio.lowlevel.Task) -> bool:
    """False once the task has ended."""
    return getattr(task.coro, "cr_frame", None) is not None


def occupy_threads(owner: object) -> None:
    """Take the one token of the run's thread limiter, so that work handed to a thread never starts."""
    limiter = trio.to_thread.current_default_thread_limiter()
    limiter.total_tokens = 1
    limiter.acquire_on_behalf_of_nowait(owner)


def check_real_waits() -> None:
    """Raise `RealWait` if a task waits for a thread, a socket or another file descriptor."""
    if trio.to_thread.current_default_thread_limiter().statistics().tasks_waiting:
        raise RealWait("a task handed work to a thread; inside a run the store works inline")
    io = trio.lowlevel.current_statistics().io_statistics
    # Trio's own wake-up socket is the one reader that is always there.
    reading, writing = getattr(io, "tasks_waiting_read", 0), getattr(io, "tasks_waiting_write", 0)
    if reading > 1 or writing:
        raise RealWait(f"tasks wait for real file descriptors ({reading - 1} to read, {writing} to write)")


def describe(nodes: Sequence[Node], main_task: trio.lowlevel.Task | None, now_ms: float) -> str:
    """One line for each parked gate, then one for each task that waits for something else."""
    gates = [chain.parked for node in nodes for chain in node.chains() if chain.parked is not None]
    parked = {gate.chain.owner for gate in gates}
    lines = [f"at {now_ms:g} ms of virtual time"]
    lines += [f"  {gate} {_state(gate)}" for gate in gates]
    if main_task is not None:
        others = [task for task in _tree(main_task) if task not in parked and alive(task)]
        lines += sorted(f"  {task.name} {_place(task)}" for task in others)
    if len(lines) > _LINES_MAX:
        lines[_LINES_MAX:] = [f"  … and {len(lines) - _LINES_MAX} more"]
    return "\n".join(lines)


def _state(gate: Gate) -> str:
    words = []
    if gate.node.state is not NodeState.RUNNING:
        words.append(f"node is {gate.node.state.value}")
    if gate.when_ns is not None:
        words.append(f"sleeps until {gate.when_ns / 1_000_000:g} ms")
    elif gate.asleep:
        words.append("waits to be woken")
    else:
        words.append("is held" if gate.held else "is ready")
    return ", ".join(words)


def _tree(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _tree(child)


def _place(task: trio.lowlevel.Task) -> str:
    frames = [
        f"{frame.f_code.co_name} ({PurePath(frame.f_code.co_filename).name}:{line})"
        for frame, line in task.iter_await_frames()
        if "trio" not in PurePath(frame.f_code.co_filename).parts
    ]
    return "waits in " + " < ".join(reversed(frames[-3:])) if frames else "has not started"
