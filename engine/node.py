"""What the parts of one node share: its log, its surroundings, its bounds, its locations."""

from __future__ import annotations

import attrs
import trio

from engine.limits import EngineConfig
from engine.locations import Locations
from engine.log import Log
from engine.ports import Clock, System


@attrs.define(kw_only=True)
class Node:
    """One engine in one process. `owner_id` is fresh per start."""

    owner_id: str
    log: Log
    system: System
    config: EngineConfig
    locations: Locations
    tool_nursery: trio.Nursery
    tool_limit: trio.CapacityLimiter
    tools_running: dict[int, str] = attrs.field(
        factory=dict
    )  #: what runs now, for whoever has to wait for it

    @property
    def clock(self) -> Clock:
        """This node's clock."""
        return self.system.clock

    def deadline(self, ms: int) -> float:
        """The monotonic reading `ms` milliseconds from now."""
        return self.clock.monotonic() + ms / 1000
