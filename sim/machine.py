"""What befalls the machine that all nodes run on: its power and its disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs

from sim.disk.database import DiskDatabase
from sim.disk.files import Operation, Side
from sim.disk.loss import drawn
from sim.gate import SimulationError
from sim.history import PowerLoss
from sim.ledger import FaultApplied, Moment
from sim.node import Life, SimNode
from sim.scenario import Fault

if TYPE_CHECKING:
    from sim.world import World


class DatabaseLost(SimulationError):
    """The database can't be used any more after a loss of power. The text says why."""


AT_ONCE = ("power_loss", "disk_error")
"""The kinds that are over as soon as they have happened, whatever follows."""

MET: Mapping[str, str] = {
    "disk_error": "{} failed",
    "disk_full": "{} refused, as the disk was full",
    "sync_lies": "{} lied",
}
"""The kinds that lie in wait: they count as applied once an operation met them, which the trace then says."""


@attrs.define(kw_only=True)
class _Begun:
    """A fault that has begun: when, whom it struck, and what ends it."""

    name: str
    fault: Fault
    moment: Moment
    struck: list[SimNode]
    end: Callable[[], None]
    left: int  #: how many operations it is still to meet
    noted: bool = False

    def waits_for(self, kind: str, operation: Operation) -> bool:
        """Whether an operation that met this kind met this one."""
        return self.left > 0 and self.fault.kind == kind and self.fault.operation in (None, operation)


class Machine:
    """Strikes all nodes at once. A fault that is tied to an operation of the disk begins within it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._begun: dict[str, _Begun] = {}
        if isinstance(world.database, DiskDatabase):
            world.database.disk.hook = self._on_operation
            world.database.disk.meet = self._note_met

    def _on_operation(self, operation: Operation, side: Side) -> None:
        written = [
            (stored.event.type, stored.event.session_id)
            for item in self._database.in_flight
            if item.error is None
            for stored in item.told
        ]
        self._world.triggers.on_disk(operation, side, written, self._database.writer)

    @property
    def _database(self) -> DiskDatabase:
        database = self._world.database
        assert isinstance(database, DiskDatabase), "a scenario without a disk has no such faults"
        return database

    async def strike(self, name: str, fault: Fault) -> list[SimNode]:
        """Let a fault befall the machine, for as long as it lasts. Returns the nodes that it struck."""
        world = self._world
        if name not in self._begun:
            self.begin(name, fault)
        begun = self._begun[name]
        if fault.kind == "power_loss":
            self._tell_loss(name)
        elif fault.for_s:
            await world.sleep(fault.for_s)
            begun.end()
            begun.left = 0
        return begun.struck

    def begin(self, name: str, fault: Fault) -> None:
        """What happens at once, be it in the middle of an operation of the disk."""
        world, moment = self._world, self._world.moment()
        struck = list(world.nodes.values())
        if fault.kind == "power_loss":  # what lasts meets those, too, that start later
            struck = [node for node in struck if node.life is not Life.DOWN or node.starting]
        for node in struck:
            world.trace.record("fault", node.name, "", fault.kind, name=name)
        end = self._begin(fault)
        left = (fault.operations or 1) if fault.kind == "disk_error" else 1
        begun = _Begun(name=name, fault=fault, moment=moment, struck=struck, end=end, left=left)
        self._begun[name] = begun
        if fault.kind not in MET:
            self._note(begun)
        if fault.kind == "power_loss":
            for node in struck:
                node.cut_power()
            loss = PowerLoss(name=name, moment=moment, honest=True)
            self._database.lose_power(drawn(world.tape, fault.unsynced), loss)

    def _begin(self, fault: Fault) -> Callable[[], None]:
        database, disk = self._database, self._database.disk
        match fault.kind:
            case "disk_error":
                assert fault.operation is not None
                disk.failing[fault.operation] = disk.failing.get(fault.operation, 0) + (fault.operations or 1)
            case "disk_full":
                disk.full += 1
                return disk.free
            case "sync_lies":
                disk.lying += 1
                return disk.stop_lying
            case "slow_disk":
                database.commit_ms = fault.commit_ms or 0
                return database.speed_up
        return _nothing

    def _note_met(self, kind: str, operation: Operation) -> None:
        """An operation met a fault of this kind: what was in wait for it was applied. Of errors the trace has
        each one, of what lasts only that it was met."""
        waiting = [begun for begun in self._begun.values() if begun.waits_for(kind, operation)]
        for begun in waiting[:1] if kind in AT_ONCE else waiting:
            begun.left -= 1
            if kind in AT_ONCE and not begun.noted:
                begun.moment = self._world.moment()
            said = MET[kind].format(f"a {operation}")
            self._world.trace.record("disk", "", "", said, name=begun.name, operation=operation)
            if not begun.noted:
                self._note(begun)

    def _note(self, begun: _Begun) -> None:
        begun.noted = True
        fault, since_ms = begun.fault, begun.moment.true_ms
        over_ms = since_ms + fault.for_s * 1000 if fault.for_s else None
        if fault.kind in AT_ONCE:
            over_ms = since_ms
        for node in begun.struck:
            applied = FaultApplied(
                moment=begun.moment,
                name=begun.name,
                kind=fault.kind,
                node=node.name,
                until_ms=over_ms,
            )
            self._world.ledger.faults.append(applied)

    def _tell_loss(self, name: str) -> None:
        """What is gone goes into the trace; without a database the run can't go on."""
        world, database = self._world, self._database
        loss = next(loss for loss in database.history.losses if loss.name == name)
        world.trace.record(
            "disk",
            "",
            "",
            _told(loss),
            name=name,
            honest=loss.honest,
            lost=tuple(commit.entry for commit in loss.lost),
            survived=tuple(commit.entry for commit in loss.survived),
        )
        if database.damage is not None:
            world.kernel.fail(DatabaseLost(f"after the power loss {name} {loss.wrong[-1]}"))


def _told(loss: PowerLoss) -> str:
    """What a loss of power left, in words, with the numbers of the trace entries of what is gone."""
    said = ["power is back"]
    if loss.lost:
        said.append("lost " + ", ".join(f"#{commit.entry} {commit.label}" for commit in loss.lost))
    if loss.survived:
        survived = ", ".join(f"#{commit.entry} {commit.label}" for commit in loss.survived)
        said.append(f"kept {survived}, which nobody was told of")
    return "; ".join([*said, *loss.wrong])


def _nothing() -> None:
    """The end of a fault that has none."""
