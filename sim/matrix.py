"""The interruption matrix: a scenario once clean, then again for each of its gates and each kind of fault.

Each cell is one run in which the fault strikes at that gate; then comes recovery (the node starts again, a
rescuer takes over) and all invariants are checked. What the file expects of the clean run isn't asked there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from sim.checks import check_invariants
from sim.gate import Gate
from sim.project import MakeProject, Project
from sim.record import Record
from sim.run import WINDOWS
from sim.saved import tape_of
from sim.scenario import Fault, Node, OnGate, Scenario
from sim.scenario.model import NODES_MAX
from sim.verdict import Violation
from sim.world import World

RESCUER = "rescuer"
RESTART_S = 2.0
LEASES_PAUSED = 1.5

MODES = ("cancelled", "power_cut", "paused", "error_not_applied", "error_applied", "taken_over")


@attrs.frozen(kw_only=True)
class Place:
    """A gate of the clean run: the how manieth, whose, and what it is about."""

    number: int
    node: str
    label: str
    task: str


@attrs.frozen(kw_only=True)
class Cell:
    """What came of one fault at one gate; None violations where it can't apply."""

    place: Place
    mode: str
    violations: list[Violation] | None

    @property
    def mark(self) -> str:
        """One character for the grid."""
        if self.violations is None:
            return " "
        return "X" if self.violations else "."


@attrs.frozen(kw_only=True)
class Matrix:
    """The whole grid; `complete` unless it was stopped on the way."""

    scenario: Scenario
    places: list[Place]
    cells: list[Cell]
    windows: list[str]
    complete: bool

    @property
    def failures(self) -> list[Cell]:
        """The cells in which something broke."""
        return [cell for cell in self.cells if cell.violations]

    def as_json(self) -> dict[str, object]:
        """For `--json`: `cells` counts gates x modes, `not_applicable` those that can't apply."""
        return {
            "name": self.scenario.name,
            "file": self.scenario.file,
            "gates": len(self.places),
            "cells": len(self.places) * len(MODES),
            "not_applicable": sum(cell.violations is None for cell in self.cells),
            "failures": len(self.failures),
            "modes": list(MODES),
            "windows": self.windows,
            "complete": self.complete,
            "broken": [
                {
                    "gate": cell.place.number,
                    "node": cell.place.node,
                    "label": cell.place.label,
                    "task": cell.place.task,
                    "mode": cell.mode,
                    "violations": [violation.as_json() for violation in cell.violations or ()],
                }
                for cell in self.failures
            ],
        }


def run_matrix(
    scenario: Scenario,
    told: Callable[[int, int], bool] = lambda done, of: True,
    *,
    project: MakeProject = Project,
) -> Matrix:
    """Run every cell. `told(done, of)` hears of the progress; False from it stops the matrix. `project` makes
    what a project of the user's own brings, anew for each cell."""
    world = with_rescuer(scenario)
    places, windows = _survey(world, project())
    cells: list[Cell] = []
    total = len(places) * len(MODES)
    for place in places:
        for mode in MODES:
            cells.append(_cell(world, place, mode, project))
            if not told(len(cells), total):
                return Matrix(scenario=scenario, places=places, cells=cells, windows=windows, complete=False)
    return Matrix(scenario=scenario, places=places, cells=cells, windows=windows, complete=True)


def with_rescuer(scenario: Scenario) -> Scenario:
    """The scenario with one more node, which only sweeps, so that there is always somebody to recover.

    Its sweep finds what expired; it never gets a client. A scenario with as many nodes as there may be stays
    as it is.
    """
    if len(scenario.nodes) >= NODES_MAX or any(node.name == RESCUER for node in scenario.nodes):
        return scenario
    return attrs.evolve(scenario, nodes=(*scenario.nodes, Node(name=RESCUER)), expect=())


def _survey(scenario: Scenario, own: Project) -> tuple[list[Place], list[str]]:
    """The gates of the clean run that belong to a node under test, and the named windows that occurred."""
    world = World(scenario, tape_of(scenario), project=own)
    places: list[Place] = []
    count = 0

    def note(gate: Gate) -> None:
        nonlocal count
        count += 1
        if gate.node.name in scenario_nodes:
            places.append(Place(number=count, node=gate.node.name, label=gate.label, task=gate.task))

    scenario_nodes = [node.name for node in scenario.nodes if node.name != RESCUER]
    world.on_gate = note
    run = world.run()
    seen = run.ledger.windows
    run.close()
    return places, [window for window in WINDOWS if any(window in found for found in seen.values())]


def _cell(scenario: Scenario, place: Place, mode: str, project: MakeProject) -> Cell:
    fault = _fault(scenario, place, mode)
    if fault is None:
        return Cell(place=place, mode=mode, violations=None)
    struck = attrs.evolve(scenario, faults=(*scenario.faults, fault))
    own = project()
    run = World(struck, tape_of(struck), project=own).run()
    try:
        record = Record(run)
        return Cell(place=place, mode=mode, violations=own.judge(record, check_invariants(record)))
    finally:
        run.close()


def _fault(scenario: Scenario, place: Place, mode: str) -> Fault | None:
    """The fault of one cell; None where it can't apply: only a gate before a commit can fail."""
    when = OnGate(gate=place.number)
    match mode:
        case "cancelled":
            return Fault(as_="cell", kind="cancel", node=place.node, when=when, for_s=RESTART_S)
        case "power_cut":
            return Fault(as_="cell", kind="power_cut", node=place.node, when=when, for_s=RESTART_S)
        case "paused":
            seconds = LEASES_PAUSED * scenario.engine_config().lease_ms / 1000
            return Fault(as_="cell", kind="stall", node=place.node, when=when, for_s=seconds)
        case "taken_over":
            return Fault(as_="cell", kind="take_over", node=place.node, when=when)
        case _ if place.label == "commit":
            applied = mode == "error_applied"
            return Fault(as_="cell", kind="store_error", node=place.node, when=when, applied=applied)
        case _:
            return None


def grid(matrix: Matrix) -> Iterator[str]:
    """The grid as text: a line for each gate, a column for each mode."""
    yield f"{'gate':>5} {'node':8} {'label':12} " + " ".join(f"{mode:17}" for mode in MODES)
    by_place: dict[int, list[Cell]] = {}
    for cell in matrix.cells:
        by_place.setdefault(cell.place.number, []).append(cell)
    for place in matrix.places:
        marks = " ".join(f"{cell.mark:17}" for cell in by_place.get(place.number, []))
        yield f"{place.number:>5} {place.node:8} {place.label:12} {marks}"
