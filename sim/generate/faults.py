"""What goes wrong with the machines of a generated world: their clocks, their owner ids, what strikes them.

Every choice is a draw of the tape's streams `clocks` and `faults`, 0 the plainest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from sim.scenario import ALL_NODES, ClockStep, Fault, NodeClock
from sim.scenario.keys import ALL_AT_ONCE
from sim.tape import Tape

T = TypeVar("T")

Kind = Literal[
    "cancel",
    "power_cut",
    "stall",
    "suspend",
    "take_over",
    "clock_step",
    "clock_slew",
    "monotonic_rate",
    "slow",
]

KINDS: Sequence[Kind] = (
    *("cancel", "power_cut", "stall", "suspend", "take_over", "clock_step"),
    *("clock_slew", "monotonic_rate", "slow", "power_cut", "suspend", "take_over"),
)

EPOCH_MS = 1_800_000_000_000
"""What right clocks show at the start where some boot in another year: a day of 2027, so that 1970 is one of
the years before it."""

BOOTS_MS = (0, -EPOCH_MS, 2_300_000_000_000, 3_600_000, -3_600_000)
"""How far off a clock is when its machine boots: in 1970, in 2100, or by an hour, as in a wrong time zone."""

RARELY = 6
"""One world in so many has machines that boot with a wrong clock: no band holds all clocks there."""

EVERYBODY = 8
"""One fault in so many strikes all nodes at one moment."""

MOMENTS_S = (0.0, 0.1, 0.5, 1.0, 3.0, 8.0, 15.0, 25.0, 40.0)
BACK_IN_S = (1.0, 5.0, 20.0, 45.0)
LONG_S = (1.0, 12.0, 21.0, 31.0, 36.0, 61.0)


class Mishaps:
    """Draws clocks, owner ids and faults for one world: what a world has at all is drawn when it is made."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._boots = tape.draw("clocks", "swarm wrong clocks at boot", RARELY) == RARELY - 1
        self._slots = bool(tape.draw("faults", "swarm owner ids", 2))

    def _pick(self, stream: str, label: str, options: Sequence[T]) -> T:
        return options[self._tape.draw(stream, label, len(options))]

    # --- who is there --------------------------------------------------------------------------------

    def owner(self, name: str) -> str | None:
        """The owner id of a node: a fresh one at each start, or that of its slot."""
        return f"slot-{name}" if self._slots else None

    def clock(self) -> NodeClock:
        """How wrong a node's clocks are."""
        epoch_ms = EPOCH_MS if self._boots else 0
        if not self._tape.draw("faults", "swarm clock", 2):
            return NodeClock(offset_ms=epoch_ms)
        at_s = self._pick("clocks", "seconds", MOMENTS_S)
        steps = (ClockStep(at_s=at_s, by_ms=self._pick("clocks", "step", (500, -500))),)
        boot_ms = self._pick("clocks", "boot", BOOTS_MS) if self._boots else 0
        return NodeClock(
            offset_ms=epoch_ms + self._pick("clocks", "offset", (0, 900, -900, 1900, -1900)),
            drift_ppm=self._pick("clocks", "drift", (0, 50, -50)),
            monotonic_ppm=self._pick("clocks", "rate", (0, 100, -100)),
            steps=steps if self._tape.draw("clocks", "steps", 2) else (),
            boot_offset_ms=boot_ms,
            boot_for_s=self._pick("clocks", "boot for", (0.5, 3.0, 20.0, 70.0)) if boot_ms else 0.0,
        )

    # --- what strikes --------------------------------------------------------------------------------

    def fault(self, nodes: Sequence[str], node: str, when: Mapping[str, Any]) -> Fault:
        """A fault that befalls `node`, or all `nodes`, at the moment `when` (`at_s` or `when` of a fault)."""
        kind = self._pick("faults", "kind", KINDS)
        everybody = self._tape.draw("faults", "all nodes", EVERYBODY) == EVERYBODY - 1
        target = ALL_NODES if everybody and kind in ALL_AT_ONCE else node
        return Fault(kind=kind, node=target, **self._keys(kind, nodes), **self._again(kind), **when)

    def _keys(self, kind: Kind, nodes: Sequence[str]) -> dict[str, Any]:
        match kind:
            case "cancel" | "power_cut":
                return {"for_s": self._pick("faults", "back in", BACK_IN_S), "owner": self._another(nodes)}
            case "stall":
                return {"for_s": self._long()}
            case "suspend":
                goes_on = self._tape.draw("clocks", "monotonic goes on", 3) == 2
                return {"for_s": self._long(), "monotonic_stops": False if goes_on else None}
            case "slow":
                gate_ms = self._pick("faults", "gate takes", (1, 20, 150))
                return {"for_s": self._pick("faults", "slow for", (1.0, 12.0, 31.0)), "gate_ms": gate_ms}
            case "clock_step":
                return {"by_ms": self._pick("clocks", "step fault", (400, -400, -1_000))}
            case "clock_slew":
                by_ms = self._pick("clocks", "slew", (400, -400, 1_500, -1_500))
                return {"by_ms": by_ms, "for_s": self._long()}
            case "monotonic_rate":
                ppm = self._pick("clocks", "rate fault", (150, -150, 1_000_000, -500_000, -750_000, -990_000))
                return {"ppm": ppm, "for_s": self._long()}
            case _:
                return {}

    def _long(self) -> float:
        return self._pick("faults", "for", LONG_S)

    def _another(self, nodes: Sequence[str]) -> str | None:
        """Whose owner id the node starts again with: its own or, where owner ids are slots', anybody's."""
        other = bool(self._tape.draw("faults", "starts as another", 2)) if self._slots else False
        return self.owner(self._pick("faults", "starts as", nodes)) if other else None

    def _again(self, kind: Kind) -> dict[str, Any]:
        """How often it strikes: mostly once."""
        times = self._pick("faults", "times", (1, 1, 1, 1, 2, 4))
        if times == 1 or kind == "take_over":
            return {}
        return {"times": times, "again_after_s": self._pick("faults", "again after", (0.5, 5.0, 40.0))}
