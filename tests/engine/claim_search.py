"""A breadth-first search over every reachable state of a `World`, checking I1 to I3 on the way.

I1: nothing is written by an execution after another one acquired, and generations only grow. I2: nobody takes
over the claim of an owner that is on time; and one that is late has stopped, its settlement included, before
anybody may take over. I3: an expired claim isn't renewed or written under, and a handle that was lost stays
lost. What the rules themselves decided is judged by `Rows`, what came of it in the world is judged here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tests.engine.claim_world import ALIVE, DEAD, IDLE, NONE, Broken, Node, Rows, State, World, check


class Search:
    """Breadth first over every state that can be reached. `reached` maps each to the one it came from."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rows = Rows(world)
        self.reached: dict[State, State | None] = {}
        self.takeovers: dict[str, int] = {"freed": 0, "expired": 0, "watched": 0}
        self._plain = functools.cache(self._plain_node)
        self._later = functools.cache(self._later_node)

    def run(self) -> None:
        """Visit everything. Raises `Broken` with the shortest way there."""
        start = State(0, (Node(), Node()))
        self.reached[start] = None
        level = [start]
        while level:
            following: list[State] = []
            for state in level:
                for after in self._next(state):
                    if after not in self.reached:
                        self.reached[after] = state
                        following.append(after)
            level = following

    def _next(self, state: State) -> Iterator[State]:
        try:
            for row in self.rows.requested(state.row):
                yield State(row, state.nodes)
            yield from self._ticks(state)
            for mine, other in (state.nodes, state.nodes[::-1]):
                yield from self._moves(state.row, mine, other)
        except Broken as broken:
            raise Broken(f"{broken}\n{self._way(state)}") from None

    def _way(self, state: State | None) -> str:
        steps: list[str] = []
        while state is not None:
            steps.append(f"{self.rows.known[state.row]}\n    {state.nodes[0]}\n    {state.nodes[1]}")
            state = self.reached[state]
        return "\n".join(reversed(steps))

    def _state(self, row: int, *nodes: Node) -> State:
        first, second = self._plain(nodes[0]), self._plain(nodes[1])
        return State(row, (first, second) if first <= second else (second, first))

    def _plain_node(self, node: Node) -> Node:
        """The node without what can't make a difference any more."""
        world = self.world
        if node.handle == IDLE:
            return Node(skew=node.skew, queued=node.queued, watching=node.watching)
        if not node.latest:  # it can only lose; whether it still tries is all that matters
            return Node(node.skew, node.handle, lost=node.lost, queued=min(node.queued, 0))
        ghost = node.handle == DEAD and (world.suspends or world.strays)
        deadline = 0 if ghost else max(node.deadline, -world.settle)
        return node._replace(deadline=deadline, queued=min(node.queued, world.belief), watching=0)

    def _ticks(self, state: State) -> Iterator[State]:
        if self.world.punctual and any(self._must_act(state.row, node) for node in state.nodes):
            return
        row = self.rows.aged(state.row)
        for stopped in ((), (0,), (1,), (0, 1)) if self.world.suspends else ((),):
            yield self._state(row, *(self._later(n, i in stopped) for i, n in enumerate(state.nodes)))

    def _must_act(self, row: int, node: Node) -> bool:
        if node.queued >= self.world.write_timeout:
            return True
        holds = node.handle == ALIVE and node.latest and self.rows.live(row)
        return holds and node.queued == NONE and node.due == 0

    def _later_node(self, node: Node, suspended: bool) -> Node:
        if suspended:
            return node
        return node._replace(
            deadline=node.deadline - 1,
            due=max(0, node.due - 1),
            queued=node.queued if node.queued == NONE else min(node.queued + 1, self.world.belief),
            watching=min(node.watching + 1, self.world.watch) if self.world.strays else 0,
        )

    def _moves(self, row: int, mine: Node, other: Node) -> Iterator[State]:
        """What one node may do now."""
        world = self.world
        for skew in world.skews:
            if skew != mine.skew:
                yield self._state(row, mine._replace(skew=skew), other)
        if not world.punctual and (mine.handle != IDLE or mine.queued != NONE):
            yield self._state(row, Node(skew=mine.skew), other)  # a crash
        if mine.handle == IDLE:
            yield from self._idle_moves(row, mine, other)
            return
        if mine.handle == DEAD and mine.queued == NONE:
            yield self._state(row, Node(skew=mine.skew), other)
        if mine.handle == ALIVE:
            yield from self._alive_moves(row, mine, other)
        if mine.queued != NONE:
            yield from self._writes(row, mine, other, mine.queued, only_renew=world.punctual)

    def _idle_moves(self, row: int, mine: Node, other: Node) -> Iterator[State]:
        if mine.queued == NONE:
            yield self._state(row, mine._replace(queued=0), other)
            return
        yield from self._acquire(row, mine, other, None)
        if self.world.strays:
            yield from self._acquire(row, mine, other, 1 if mine.watching == self.world.watch else 0)

    def _alive_moves(self, row: int, mine: Node, other: Node) -> Iterator[State]:
        former = not mine.latest
        if mine.latest and mine.deadline <= 0:
            yield self._state(row, mine._replace(handle=DEAD), other)
        elif mine.queued == NONE:
            if not self.world.punctual or former or mine.due == 0:
                yield self._state(row, mine._replace(queued=0), other)
            if self.world.punctual:
                yield from self._writes(row, mine, other, 0)
        if self.world.punctual and mine.queued == NONE and (former or not self.rows.live(row)):
            yield self._state(row, Node(skew=mine.skew), other)

    def _acquire(self, row: int, mine: Node, other: Node, version: int | None) -> Iterator[State]:
        outcome = self.rows.acquired(row, mine.skew, version)
        if not outcome.granted:
            yield self._state(row, mine._replace(queued=NONE), other)
            return
        if outcome.takes:
            self.takeovers[outcome.takes] += 1
            self._check_takeover(outcome.takes, other)
        world, age = self.world, mine.queued
        taker = Node(mine.skew, ALIVE, True, False, world.belief - age, self._due(age))
        yield self._state(outcome.row, taker, other._replace(latest=False, watching=0))

    def _check_takeover(self, takes: str, former: Node) -> None:
        world = self.world
        if takes == "freed" or former.handle == IDLE or not former.latest:
            return
        if world.strays:  # nothing is promised to an owner whose clock strays, but watching harms no other
            alive = world.punctual and takes == "watched" and former.handle == ALIVE
            check(not alive, "I2", f"a claim that its owner renews was taken over as watched: {former}")
            return
        check(not world.punctual, "I2", f"the {takes} claim of a punctual owner was taken over: {former}")
        stopped = world.suspends or former.deadline <= -world.settle
        check(stopped, "I2", f"the former owner may still be settling: {former}")

    def _due(self, age: int) -> int:
        if not self.world.punctual:
            return 0
        return self.world.renew if self.world.renews_from_outcome else max(0, self.world.renew - age)

    def _writes(
        self, row: int, mine: Node, other: Node, age: int, *, only_renew: bool = False
    ) -> Iterator[State]:
        """Each way in which a fenced write that was queued `age` ticks ago can end."""
        granted, refused, lost = self._ends(mine, age, only_renew)
        seen = other._replace(watching=0)
        for outcome in self.rows.fenced(row, mine.latest, mine.skew, only_renew):
            if outcome.granted:
                check(not mine.lost, "I3", f"a handle that was lost wrote again: {mine}")
                yield self._state(outcome.row, granted, seen)
            else:
                yield self._state(outcome.row, lost if outcome.lost else refused, other)

    def _ends(self, mine: Node, age: int, only_renew: bool) -> tuple[Node, Node, Node]:
        """The node after its write was granted, was refused, or told it that its claim is lost."""
        world = self.world
        refused = mine._replace(queued=NONE)
        due = self._due(age) if only_renew else mine.due
        granted = refused._replace(deadline=max(mine.deadline, world.belief - age), due=due)
        lost = refused._replace(lost=True, handle=DEAD if world.latches else mine.handle)
        return granted, refused, lost
