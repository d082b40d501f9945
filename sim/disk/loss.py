"""What of the unsynced changes outlives a loss of power: a draw, or what the scenario says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import get_args

from sim.disk.files import Change, Survives
from sim.scenario.disk import Unsynced
from sim.tape import Tape

LABEL = "unsynced"


def drawn(tape: Tape, how: Unsynced | None) -> Survives:
    """`how` it goes, a draw if it isn't said; 0 on the tape loses everything."""

    def survives(changes: list[Change]) -> list[Change]:
        if not changes:
            return []
        ways: tuple[Unsynced, ...] = get_args(Unsynced)
        way = how or ways[tape.draw("store", LABEL, len(ways))]
        return WAYS[way](tape, changes)

    return survives


def _lost(tape: Tape, changes: list[Change]) -> list[Change]:
    return []


def _kept(tape: Tape, changes: list[Change]) -> list[Change]:
    return changes


def _some(tape: Tape, changes: list[Change]) -> list[Change]:
    """Each by itself, in no order: caches write back what they like."""
    return [change for change in changes if tape.draw("store", f"{LABEL} kept", 2)]


def _torn(tape: Tape, changes: list[Change]) -> list[Change]:
    """Each is cut somewhere, kept or lost; what is within one sector can't be cut and is then kept."""
    survived = []
    for change in changes:
        match tape.draw("store", f"{LABEL} torn", 3):
            case 0 if change.sectors > 1:
                survived.append(change.cut(1 + tape.draw("store", f"{LABEL} sectors", change.sectors - 1)))
            case 0 | 1:
                survived.append(change)
    return survived


WAYS: Mapping[Unsynced, Callable[[Tape, list[Change]], list[Change]]] = {
    "lost": _lost,
    "kept": _kept,
    "some": _some,
    "torn": _torn,
}
