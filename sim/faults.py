"""How each kind of fault strikes a node. A fault is data (`sim.scenario.Fault`); this is what it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from engine import errors
from engine.records import Claim
from sim.gate import Node
from sim.kernel import ns_at
from sim.ledger import FaultApplied
from sim.node import Life, SimNode
from sim.scenario import Fault
from sim.store import InjectedError

if TYPE_CHECKING:
    from sim.world import World

TAKE_OVER_LOOKS_S = 0.1
TAKE_OVER_LEASES_MAX = 10


async def strike(world: World, name: str, fault: Fault) -> bool:
    """Let a fault befall its node, for as long as it lasts. False if the node was down already."""
    node = world.nodes[fault.node]
    if node.life is Life.DOWN and fault.kind != "clock_step":
        return False
    start = world.moment()
    world.trace.record("fault", node.name, "", fault.kind, name=name)
    match fault.kind:
        case "cancel":
            node.cancel()
        case "power_cut":
            node.cut_power()
        case "stall":
            node.pause()
            await world.sleep(fault.for_s or 0.0)
            node.resume()
        case "take_over":
            node.pause()
            await _until_taken_over(world, node, fault)
            node.resume()
        case "suspend":
            node.suspend()
            await world.sleep(fault.for_s or 0.0)
            node.wake_up()
        case "clock_step":
            node.wall.adjust(world.kernel.now_ns, fault.by_ms or 0)
        case "store_error":
            _fail_batches(node, fault)
    world.ledger.faults.append(
        FaultApplied(moment=start, name=name, kind=fault.kind, node=node.name, until_ms=world.kernel.now_ms)
    )
    return True


async def restart(world: World, fault: Fault) -> None:
    """Start the node again after `for_s`, if the fault says so."""
    if fault.kind in ("cancel", "power_cut") and fault.for_s:
        await world.sleep(fault.for_s)
        world.nodes[fault.node].start_if_down()


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


def _fail_batches(node: SimNode, fault: Fault) -> None:
    assert node.store is not None
    node.store.faults = failing(fault.error or "StoreIOError", fault.batches or 1, fault.applied or False)


def failing(error: str, batches: int, applied: bool) -> Callable[[Node, Sequence[str]], InjectedError | None]:
    """A store fault for the next `batches` batches of one node."""
    left = batches
    cls: type[errors.StoreError] = getattr(errors, error)

    def fault(node: Node, labels: Sequence[str]) -> InjectedError | None:
        nonlocal left
        if left == 0:
            return None
        left -= 1
        text = f"injected: the store failed on {', '.join(labels)}"
        return InjectedError(error=cls(text), applied=applied)

    return fault
