"""Watches each hop: the publisher's memory must equal the fold of what it committed (I9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine import facts
from engine.codec import decode_row
from engine.events import Stored
from engine.execution import Execution
from sim.node import SimNode

if TYPE_CHECKING:
    from sim.world import World

WHOLE = 1_000_000


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
                    f"{node.name} holds {runner.state.facts} of step {runner.message_id}, "
                    f"and the log says {logged}",
                )
            )


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
