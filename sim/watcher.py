"""Watches each hop: the publisher's memory must equal the fold of what it committed (I9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engine import facts
from engine.codec import decode_row
from engine.events import Stored
from engine.execution import Execution
from sim.node import SimNode

if TYPE_CHECKING:
    from sim.world import World

WHOLE = 1_000_000

FRAGMENT = {None: "missing", True: "open", False: "ended"}
CALL = {None: "missing", False: "open", True: "settled"}
ENDED = {False: "open", True: "ended"}


class Watcher:
    """Compares memory and log after every hop, before the publisher runs on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._due: list[tuple[SimNode, str]] = []

    def due(self, node: SimNode, session_id: str) -> None:
        """The node just went through a hop for this session."""
        self._due.append((node, session_id))

    def check(self) -> None:
        """Look at what is due. Called in the clock, where no task is in the middle of something."""
        if not self._due:
            return
        due, self._due = self._due, []
        for node, session_id in due:
            slot = node.engine.coordinator.slot(session_id) if node.engine is not None else None
            if slot is not None and slot.execution is not None:
                self._compare(node, slot.execution)

    def _compare(self, node: SimNode, execution: Execution) -> None:
        runner = execution.runner
        row = execution.row
        if runner is None or runner.state is None or execution.handle.lost is not None:
            return
        events = self._world.database.reader().events(row.session_id, row.assistant_seq - 1, WHOLE)
        # a successor may have settled the step meanwhile, of which a node that stalled knows nothing yet
        own = [each for each in events if each.execution_id == row.execution_id]
        logged: facts.StepFacts | str | None
        try:
            logged = facts.fold(decode_row(each).event for each in own)
        except AssertionError as exc:  # the fold of a log that no step could have written
            logged = f"what can't be: {exc}"
        if logged != runner.state.facts:
            world = self._world
            world.ledger.breaches.append(
                (
                    world.moment(),
                    row.session_id,
                    node.name,
                    f"{node.name} and the log differ about step {runner.message_id}: "
                    f"{difference(runner.state.facts, logged)}",
                )
            )


def difference(held: facts.StepFacts, logged: facts.StepFacts | str | None) -> str:
    """In what a publisher's memory of a step and the log's differ; `logged` is the fold of the log, None if
    it holds no such step, or words for a log that can't be folded."""
    if logged is None:
        return "the log has no such step"
    if isinstance(logged, str):
        return f"the log says {logged}"
    return ", ".join(
        f"{what} is {mine} in its memory and {theirs} in the log"
        for what, mine, theirs in _told(held, logged)
        if mine != theirs
    )


def _told(held: facts.StepFacts, logged: facts.StepFacts) -> Iterator[tuple[str, str, str]]:
    """(what, as the memory has it, as the log has it), for each thing that either knows of a step."""
    for key in dict.fromkeys((*held.fragments, *logged.fragments)):
        found = [FRAGMENT[each.fragments.get(key)] for each in (held, logged)]
        yield " ".join(str(part) for part in key), found[0], found[1]
    for call in dict.fromkeys((*held.calls, *logged.calls)):
        known = [each.calls.get(call) for each in (held, logged)]
        calls = [CALL[None if each is None else each.settled] for each in known]
        yield f"call {call}", calls[0], calls[1]
    yield "the stream", ENDED[held.streamed], ENDED[logged.streamed]
    yield "its terminal", held.terminal or "missing", logged.terminal or "missing"


class HopObserver:
    """`engine.ports.StoreObserver`: notes which hops are to be checked."""

    def __init__(self, watcher: Watcher, node: SimNode) -> None:
        self._watcher = watcher
        self._node = node

    def committed(self, stored: Sequence[Stored]) -> None:
        """A hop ran."""
        for session_id in dict.fromkeys(item.event.session_id for item in stored):
            self._watcher.due(self._node, session_id)

    def changed_elsewhere(self) -> None:
        """Nothing of ours."""
