"""Fresh ids and jitter that are the same in every run of a tape.

Both are drawn per task name: a counter that a node's tasks share would follow the order in which tasks that
woke together happen to run.
"""

from __future__ import annotations

import base64
import hashlib

from sim.gate import Node
from sim.kernel import Kernel
from sim.tape import Tape

_SALTS = 1 << 16


def draw_salt(tape: Tape) -> int:
    """What all the jitter of a run depends on: one draw, made by the world before anything runs."""
    return tape.draw("clocks", "jitter", _SALTS)


class SimIds:
    """`engine.ports.Ids`: `msg_a.1_k3fq2m7a_2` is the second id of one task of node `a`, incarnation 1."""

    def __init__(self, kernel: Kernel, node: Node) -> None:
        self._kernel = kernel
        self._node = node
        self._tags: dict[str, str] = {}  # by task name

    def new(self, prefix: str) -> str:
        chain = self._kernel.roster.chain(self._node)
        tag = self._tags.get(chain.task_name) or self._new_tag(chain.task_name)
        value = f"{prefix}_{self._node.key}_{tag}_{chain.count('ids.new')}"
        self._kernel.note("ids", self._node, "new", value=value)
        return value

    def _new_tag(self, name: str) -> str:
        tag = _tag(name)
        # Two names with one tag would share ids; 40 bits make that a matter of editing a name.
        assert tag not in self._tags.values(), f"rename {name}"
        self._tags[name] = tag
        return tag


class SimChance:
    """`engine.ports.Chance`: a fraction for each time a task asks, spread by the run's `salt`.

    The salt 0 gives one half each time, which is no jitter at all.
    """

    def __init__(self, kernel: Kernel, node: Node, salt: int) -> None:
        self._kernel = kernel
        self._node = node
        self._salt = salt

    def fraction(self) -> float:
        chain = self._kernel.roster.chain(self._node)
        nth = chain.count("chance.fraction")
        value = _fraction(f"{self._salt}/{self._node.key}/{chain.task_name}/{nth}") if self._salt else 0.5
        self._kernel.note("chance", self._node, "fraction", value=value)
        return value


def _tag(task_name: str) -> str:
    digest = hashlib.blake2b(task_name.encode("utf-8", "replace"), digest_size=5).digest()
    return base64.b32encode(digest).decode().lower()


def _fraction(text: str) -> float:
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).digest()
    return int.from_bytes(digest, "big") / (1 << 48)
