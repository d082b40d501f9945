"""How each kind of fault strikes a node. A fault is data (`sim.scenario.Fault`); this is what it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from engine import errors
from engine.records import Claim
from sim.disk.driver import Refusal
from sim.gate import Node
from sim.kernel import ns_at
from sim.ledger import FaultApplied, Moment
from sim.node import Life, SimNode
from sim.scenario import ALL_NODES, DISK_KINDS, Fault
from sim.store import InjectedError

if TYPE_CHECKING:
    from sim.world import World

ON_CLOCKS = ("clock_step", "clock_slew", "monotonic_rate")
"""The kinds that befall a machine whether or not its node is up."""

LASTING = ("stall", "suspend", "slow", "clock_slew", "monotonic_rate")
"""The kinds that end after `for_s`."""

NOTED_WHEN_MET = ("store_error",)
"""The kinds that lie in wait: they count as applied once something met them."""

TAKE_OVER_LOOKS_S = 0.1
TAKE_OVER_LEASES_MAX = 10


async def strike(world: World, name: str, fault: Fault) -> list[SimNode]:
    """Let a fault befall its node, or all nodes at one moment, for as long as it lasts. Returns those that it
    struck: who is down already is spared, but for its clocks."""
    if fault.kind in DISK_KINDS:
        return await world.machine.strike(name, fault)
    struck = [node for node in _meant(world, fault) if node.life is not Life.DOWN or fault.kind in ON_CLOCKS]
    start = world.moment()
    ends: list[Callable[[], None]] = []
    for node in struck:
        world.trace.record("fault", node.name, "", fault.kind, name=name)
        ends.append(_begin(world, node, name, fault))
    if fault.kind == "take_over":
        for node in struck:
            await _until_taken_over(world, node, fault)
    elif struck and fault.kind in LASTING and fault.for_s:
        await world.sleep(fault.for_s)
    for node, end in zip(struck, ends, strict=True):
        end()
        if fault.kind not in NOTED_WHEN_MET:
            _note(world, node, name, fault, start)
    return struck


def _note(world: World, node: SimNode, name: str, fault: Fault, start: Moment) -> None:
    """Write down that it was applied, from `start` to now."""
    world.ledger.faults.append(
        FaultApplied(
            moment=start,
            name=name,
            kind=fault.kind,
            node=node.name,
            until_ms=world.kernel.now_ms,
            applied=fault.applied or False,
        )
    )


def _meant(world: World, fault: Fault) -> list[SimNode]:
    return list(world.nodes.values()) if fault.node == ALL_NODES else [world.nodes[fault.node]]


def _begin(world: World, node: SimNode, name: str, fault: Fault) -> Callable[[], None]:
    """Let it begin on one node, in no time; what is returned ends it."""
    match fault.kind:
        case "cancel":
            node.cancel()
        case "power_cut":
            node.cut_power()
        case "stall" | "take_over":
            return node.pause()
        case "suspend":
            return node.suspend(monotonic_stops=fault.monotonic_stops is not False)
        case "slow":
            return node.slow(fault.gate_ms or 0)
        case "clock_step":
            node.wall.adjust(world.kernel.now_ns, fault.by_ms or 0)
        case "clock_slew":
            node.wall.adjust(world.kernel.now_ns, fault.by_ms or 0, fault.for_s or 0.0)
        case "monotonic_rate":
            node.set_monotonic_ppm(fault.ppm or 0)
            if fault.for_s:
                return lambda: node.set_monotonic_ppm(node.spec.clock.monotonic_ppm)
        case "store_error":
            _fail_batches(world, node, name, fault)
    return _nothing


def _nothing() -> None:
    """The end of a fault that has none."""


async def restart(world: World, fault: Fault, struck: Sequence[SimNode]) -> None:
    """Start the nodes that it struck again after `for_s`, if the fault says so, and as whom it says."""
    if struck and fault.kind in ("cancel", "power_cut", "power_loss") and fault.for_s:
        await world.sleep(fault.for_s)
        for node in struck:
            node.start_if_down(fault.owner)


async def _until_taken_over(world: World, node: SimNode, fault: Fault) -> None:
    """Wait until no claim that the node held is still its own."""
    held = [claim for claim in _claims(world, fault) if world.owner_of(claim) == node.name]
    lease_s = world.scenario.engine_config().lease_ms / 1000
    until = world.kernel.now_ns + TAKE_OVER_LEASES_MAX * ns_at(lease_s)
    while world.kernel.now_ns < until:
        now = [claim.execution_id for claim in _claims(world, fault)]
        if not any(claim.execution_id in now for claim in held):
            return
        await world.sleep(TAKE_OVER_LOOKS_S)


def _claims(world: World, fault: Fault) -> list[Claim]:
    claims = world.database.reader().claims("", 1_000)
    if fault.session is None:
        return claims
    return [claim for claim in claims if claim.session_id == world.session_id(fault.session)]


def _fail_batches(world: World, node: SimNode, name: str, fault: Fault) -> None:
    def met() -> None:
        _note(world, node, name, fault, world.moment())

    assert node.store is not None
    batches, applied, error = fault.batches or 1, fault.applied or False, fault.error or "StoreIOError"
    refusal = None
    if fault.inside is not None:
        refusal = Refusal(error=error, inside=fault.inside, statement=fault.statement or 1)
    node.store.faults = failing(error, batches, applied, met, refusal)


def failing(
    error: str,
    batches: int,
    applied: bool,
    met: Callable[[], None] = _nothing,
    refusal: Refusal | None = None,
) -> Callable[[Node, Sequence[str]], InjectedError | None]:
    """A store fault for the next `batches` batches of one node; `met` is called when it meets the first."""
    left = batches
    cls: type[errors.StoreError] = getattr(errors, error)

    def fault(node: Node, labels: Sequence[str]) -> InjectedError | None:
        nonlocal left
        if left == 0:
            return None
        if left == batches:
            met()
        left -= 1
        text = f"injected: the store failed on {', '.join(labels)}"
        return InjectedError(error=cls(text), applied=applied, refusal=refusal)

    return fault
