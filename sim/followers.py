"""Followers of a scenario: each reads one session's log from one node, and notes what it saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import FencepostError
from engine.events import Stored
from sim.kernel import ns_at
from sim.ledger import Followed
from sim.scenario import Follower

if TYPE_CHECKING:
    from sim.world import World


async def follow(world: World, spec: Follower, number: int) -> None:
    """The task of one follower. It ends with its session or with the engine it reads from."""
    with world.kernel.ending():
        await world.kernel.sleep_until(ns_at(spec.at_s), node=world.kernel.world)
        node = world.nodes[spec.node]
        if not node.booted.is_set():
            await node.booted.wait()
            await world.kernel.gate("booted", node=world.kernel.world)
        if node.engine is None:
            return
        seen = Followed(
            name=spec.as_ or f"follower-{number}",
            node=node.name,
            session_id=world.session_id(spec.session),
            after=spec.after_seq,
        )
        world.ledger.followed.append(seen)
        engine = node.engine
        try:
            async with engine.log(seen.session_id, after=spec.after_seq, follow=True) as reader:
                seen.listening = True
                async for item in reader:
                    if isinstance(item, Stored):
                        seen.seen.append((item.seq, item.event_id))
        except FencepostError:
            pass  # the engine closed; what was seen until then must be right all the same
        finally:
            # frozen at the end of the run it still listens, and must have seen everything
            open_still = seen.listening and node.engine is engine
            seen.listening = open_still and world.kernel.frozen
            seen.cut_off = open_still and not world.kernel.frozen
