"""What each step of a run touches, and which steps therefore commute.

A *step* is what runs from the choice of a gate or timer until nothing is runnable. Its footprint names the
resources that it reads and writes: the memory of a node (`node/a`), what belongs to all (`world`), rows of a
session (`claim/ses_s`), a node's doorbell, a provider's count. Two steps commute unless one of them writes
what the other touches. What isn't known to be harmless touches everything.

Runs that differ only in the order of steps that commute are one run for every node, session and check. `Past`
tells such runs from others by a hash of each step and of the steps it depends on: what Mazurkiewicz's traces
are ("Trace Theory", 1987), as a number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

# --- footprints --------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Footprint:
    """What a step read and wrote, sorted by name; `everything` commutes with nothing."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    everything: bool = False


EVERYTHING = Footprint(everything=True)


def commute(a: Footprint, b: Footprint) -> bool:
    """Whether the order of two such steps makes no difference."""
    if a.everything or b.everything:
        return False
    a_touches, b_touches = (*a.reads, *a.writes), (*b.reads, *b.writes)
    return not any(one in b_touches for one in a.writes) and not any(one in a_touches for one in b.writes)


@attrs.define
class Touched:
    """A footprint in the making."""

    everything: bool = False
    _reads: dict[str, None] = attrs.field(factory=dict)
    _writes: dict[str, None] = attrs.field(factory=dict)

    def read(self, *resources: str) -> None:
        """It read these."""
        self._reads.update(dict.fromkeys(resources))

    def write(self, *resources: str) -> None:
        """It wrote these."""
        self._writes.update(dict.fromkeys(resources))

    def add(self, other: Touched) -> None:
        """It touched that, too."""
        self.everything = self.everything or other.everything
        self._reads.update(other._reads)
        self._writes.update(other._writes)

    def footprint(self) -> Footprint:
        """What came together."""
        if self.everything:
            return EVERYTHING
        reads = sorted(one for one in self._reads if one not in self._writes)
        return Footprint(reads=tuple(reads), writes=tuple(sorted(self._writes)))


# --- the store's rows --------------------------------------------------------------------------------

TABLES = ("session", "event", "input", "claim", "fence", "recovery")
ADMISSION = "admission"  #: the order of inputs over all sessions

READS_OF_ONE: Mapping[str, str] = {
    "session": "session",
    "latest_seq": "event",
    "events": "event",
    "latest_event": "event",
    "claim": "claim",
    "generation": "fence",
    "inputs": "input",
    "pending_inputs": "input",
    "pending_count": "input",
    "parked_count": "input",
    "recovery": "recovery",
}
"""Named reads whose first argument is a session's id, and the table whose rows they read."""

READS_OF_ALL: Mapping[str, tuple[str, ...]] = {
    "sessions": ("session",),
    "claims": ("claim",),
    "claims_due": ("claim",),
    "sessions_waiting": ("input", "session", "claim", "recovery"),
    "released": ("recovery", "claim"),
    "quarantined": ("recovery",),
}
"""Named reads that look at every session."""

READS_BY_ID: Mapping[str, str] = {"event_by_id": "event", "input": "input"}
"""Named reads by an id that is unique over all sessions."""

WRITES: Mapping[str, str] = {
    "append_event": "event",
    "put_session": "session",
    "put_input": "input",
    "park_inputs": "input",
    "unpark_inputs": "input",
    "put_claim": "claim",
    "delete_claim": "claim",
    "put_generation": "fence",
    "put_recovery": "recovery",
    "delete_recovery": "recovery",
}
"""Named writes; the first argument is a session's id, or a row that has one."""

HARMLESS = ("end", "tell")


def all_rows(session_id: str) -> tuple[str, ...]:
    """Every row of a session."""
    return tuple(f"{table}/{session_id}" for table in TABLES)


def touch_rows(touched: Touched, name: str, args: Sequence[Any], sessions: Sequence[str]) -> None:
    """Note what the call of a reader's or transaction's method touches; `sessions` are all there are."""
    if name in READS_OF_ONE:
        touched.read(f"{READS_OF_ONE[name]}/{args[0]}")
    elif name in READS_OF_ALL:
        tables = READS_OF_ALL[name]
        touched.read(ADMISSION, *(f"{table}/{one}" for table in tables for one in sessions))
    elif name in READS_BY_ID:
        touched.read(f"{READS_BY_ID[name]} id/{args[0]}")
    elif name in WRITES:
        _touch_written(touched, name, args[0])
    elif name == "erase_session":
        touched.write(ADMISSION, *all_rows(args[0]))
    elif name not in HARMLESS:
        touched.everything = True


def _touch_written(touched: Touched, name: str, row: Any) -> None:
    session_id = row if isinstance(row, str) else row.session_id
    touched.write(f"{WRITES[name]}/{session_id}")
    # the row it refers to must be there, and the history of commits notes the claim that it found
    touched.read(f"session/{session_id}", f"claim/{session_id}")
    if name == "append_event":
        touched.write(f"event id/{row.event_id}")
    elif name == "put_input":
        touched.write(f"input id/{row.input_id}", ADMISSION)


class Noted:
    """A reader or transaction whose calls are noted in what `touched` returns at that moment."""

    def __init__(self, inner: Any, touched: Callable[[], Touched], sessions: Sequence[str]) -> None:
        self._inner = inner
        self._touched = touched
        self._sessions = sessions

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def noted(*args: Any, **kwargs: Any) -> Any:
            touched = self._touched()
            touch_rows(touched, name, (*args, *kwargs.values()), self._sessions)
            found = value(*args, **kwargs)
            if name in READS_BY_ID and found is not None:
                touched.read(f"{READS_BY_ID[name]}/{found.session_id}")
            return found

        return noted


# --- what came before --------------------------------------------------------------------------------

BITS = 128
_MASK = (1 << BITS) - 1


def mixed(*parts: object) -> int:
    """A hash of `BITS` bits, the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=BITS // 8).digest(), "big")


@attrs.frozen
class Past:
    """The steps so far, up to the order of those that commute.

    `whole` is the same for two runs if and only if (but for collisions) each step that happened in one
    happened in the other after the same steps that it depends on. `in_order` tells orders apart, too, back to
    the last moment at which nothing was left to choose from.
    """

    whole: int = 0
    in_order: int = 0
    _floor: int = 0  #: the last step that touched everything
    _wrote: Mapping[str, int] = attrs.field(factory=dict)  #: by resource, who wrote it last since then

    def of(self, key: object, footprint: Footprint) -> int:
        """The hash of a step with all that it depends on, if it comes next and touches this."""
        if footprint.everything:
            return mixed(key, self.whole)
        # a writer needn't know who read before it: the readers' own hashes tell what they read
        touched = (*footprint.reads, *footprint.writes)
        return mixed(key, *(self._wrote.get(one, self._floor) for one in touched))

    def of_order(self, key: object) -> int:
        """The hash of a step with all that came before it, in that order."""
        return mixed("in order", key, self.in_order)

    def after(self, key: object, step: int, footprint: Footprint) -> Past:
        """The past once that step has happened; `step` is its hash."""
        whole = (self.whole + step) & _MASK
        in_order = mixed(self.in_order, key)
        if footprint.everything:
            return Past(whole, in_order, floor=mixed("floor", whole))
        wrote = {**self._wrote, **dict.fromkeys(footprint.writes, step)}
        return Past(whole, in_order, self._floor, wrote)

    def joined(self) -> Past:
        """The past at a moment where nothing is left to choose from: the order that led here is forgotten."""
        return attrs.evolve(self, in_order=mixed("joined", self.whole))
