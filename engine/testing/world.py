"""What the engines of one test share: a virtual clock, counted ids, no chance, a database in memory."""

from __future__ import annotations

import attrs

from engine.ports import Chance, Ids, System
from engine.store.memory import MemoryDatabase
from engine.system import RealClock

WALL_MS = 1_800_000_000_000
"""Where the wall clock of a test begins, in milliseconds: a day in January 2027."""


class VirtualClock(RealClock):
    """`engine.ports.Clock` over the clock of the Trio run, which is a virtual one in a test.

    The wall clock begins at `wall_ms` and follows the monotonic one, unless it is set.
    """

    def __init__(self, wall_ms: int = WALL_MS) -> None:
        self._wall_at_zero_ms: float = wall_ms

    def now_ms(self) -> int:
        """The wall clock, in milliseconds."""
        return round(self._wall_at_zero_ms + self.monotonic() * 1000)

    def set_wall_ms(self, wall_ms: int) -> None:
        """Step the wall clock, forwards or back; nobody's sleep is touched by it."""
        self._wall_at_zero_ms = wall_ms - self.monotonic() * 1000


class CountedIds:
    """`engine.ports.Ids` that counts: `ses_1`, `ses_2`, `msg_1` …"""

    def __init__(self) -> None:
        self._latest: dict[str, int] = {}

    def new(self, prefix: str) -> str:
        """The next id with this prefix."""
        number = self._latest[prefix] = self._latest.get(prefix, 0) + 1
        return f"{prefix}_{number}"


class EvenChance:
    """`engine.ports.Chance` that always picks the middle, so that jitter is nil."""

    def fraction(self) -> float:
        """One half."""
        return 0.5


@attrs.frozen(kw_only=True, eq=False)
class World:
    """Open several engines on one world, at once or after each other, to test what outlives an engine."""

    clock: VirtualClock = attrs.field(factory=VirtualClock)
    ids: Ids = attrs.field(factory=CountedIds)
    chance: Chance = attrs.field(factory=EvenChance)
    database: MemoryDatabase = attrs.field(factory=MemoryDatabase)

    @property
    def system(self) -> System:
        """The surroundings of an engine in this world."""
        return System(clock=self.clock, ids=self.ids, chance=self.chance)
