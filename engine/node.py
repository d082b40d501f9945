"""What the parts of one node share: its log, its surroundings, its bounds, its services."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import trio

from engine.limits import EngineConfig
from engine.log import Log
from engine.ports import Clock, Provider, System, Tool


@attrs.frozen(kw_only=True)
class Services:
    """The provider and the tools that a session's location selects."""

    provider: Provider
    tools: Mapping[str, Tool]


@attrs.define(kw_only=True)
class Node:
    """One engine in one process. `owner_id` is fresh per start."""

    owner_id: str
    log: Log
    system: System
    config: EngineConfig
    services: Services
    tool_nursery: trio.Nursery

    @property
    def clock(self) -> Clock:
        """This node's clock."""
        return self.system.clock

    def deadline(self, ms: int) -> float:
        """The monotonic reading `ms` milliseconds from now."""
        return self.clock.monotonic() + ms / 1000
