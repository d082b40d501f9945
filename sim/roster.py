"""Which nodes there are, which of their tasks is speaking, and what it noted before its next gate."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import trio

from sim import guard
from sim.gate import Chain, DuplicateTask, Node, NodeState, SimulationError
from sim.trace import Trace

_acting: contextvars.ContextVar[Node | None] = contextvars.ContextVar("fencepost_sim_node", default=None)


@contextlib.contextmanager
def acting_as(node: Node | None) -> Iterator[None]:
    """Tasks started inside belong to `node`, and so do theirs; None is the world."""
    token = _acting.set(node)
    try:
        yield
    finally:
        _acting.reset(token)


def current_node() -> Node | None:
    """The node the current task belongs to; None for the world's own tasks."""
    return _acting.get()


class Roster:
    """The nodes of a run and the chains of their tasks. `fail` ends the run with an error."""

    def __init__(self, trace: Trace, fail: Callable[[BaseException], None]) -> None:
        self._trace = trace
        self._fail = fail
        self.world = Node("world", 0)
        self.nodes = [self.world]

    def add_node(self, name: str) -> Node:
        """The next incarnation of the node of this name, counted from 1."""
        node = Node(name, 1 + sum(known.name == name for known in self.nodes))
        self.nodes.append(node)
        return node

    def chain(self, node: Node) -> Chain:
        """The chain of the current task on `node`; the clock's own outside of tasks.

        Ends the run with a `SimulationError` if the task has no business there.
        """
        try:
            task = trio.lowlevel.current_task()
        except RuntimeError:
            return node.chain("<clock>")
        chain = node.chain(task.name)
        if chain.owner is not task or node.state is NodeState.DEAD:
            self._adopt(chain, task)
        return chain

    def _adopt(self, chain: Chain, task: trio.lowlevel.Task) -> None:
        acting, node, owner = _acting.get(), chain.node, chain.owner
        if acting is not None and acting is not node:
            raise self._failed(SimulationError(f"task {task.name} of node {acting} used a port of {node}"))
        if node.state is NodeState.DEAD:
            raise self._failed(SimulationError(f"{node}/{task.name} runs although the node is dead"))
        if owner is not None and guard.alive(owner):
            raise self._failed(DuplicateTask(f"two live tasks of node {node} are named {task.name!r}"))
        chain.owner = task

    def _failed(self, error: SimulationError) -> SimulationError:
        self._fail(error)
        return error

    def write_notes(self, chain: Chain) -> None:
        """Put what the chain's task noted into the trace, under the moments at which it did."""
        if not chain.notes:
            return
        now_ns = self._trace.now_ns
        for noted_ns, kind, label, fields in chain.notes:
            self._trace.now_ns = noted_ns
            self._trace.record(kind, chain.node.key, chain.task_name, label, **fields)
        chain.notes.clear()
        self._trace.now_ns = now_ns

    def write_all_notes(self) -> None:
        """The notes of all tasks, in the order of their names."""
        for node in self.nodes:
            for chain in node.chains():
                self.write_notes(chain)

    def record(self, kind: str, node: Node, label: str, **fields: Any) -> int:
        """A trace entry of the current task, written at once; only for a task that just passed a gate."""
        chain = self.chain(node)
        self.write_notes(chain)
        return self._trace.record(kind, node.key, chain.task_name, label, **fields)
