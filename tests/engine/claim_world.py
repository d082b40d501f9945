"""A small world around the claim rules, for an explicit-state search: two nodes, one row, integer time.

The real `decide` judges each command. Everything else here is bookkeeping that it knows nothing of: who
acquired last, what each execution believes of its claim, and which writes are queued. All times are counted
from now, and what can't be told apart (ids, versions, generations, how long ago something expired) is renamed
to one spelling, so the number of states is finite.

How an execution keeps its claim: the local deadline is the greatest, over its fenced writes that succeeded,
of (time of queueing + lease - margin); a write begins only before it, and the handle that saw it pass, or saw
a loss, is dead for good. A renewal is due `renew` after the previous one was *queued*.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import attrs

from engine.claims import (
    MOVES,
    Acquire,
    Clear,
    Command,
    Decision,
    Detach,
    Drop,
    Expire,
    Facts,
    Fenced,
    Granted,
    HandOver,
    Keep,
    Lost,
    Open,
    Renew,
    RequestInterrupt,
    Step,
    Update,
    Watched,
    Work,
    decide,
)
from engine.records import Claim, Fence, Phase

Decide = Callable[[Claim | None, Facts, Command, int], Decision]
Cell = tuple[Phase | None, type[Command]]

NOW = 100  # true time is always here; clocks read NOW + skew, and rows are moved back as time passes
FACTS = Facts(generation=1, assistant_seq=0)
STRAY = 9  # how far a straying clock jumps ahead
FORMER, LATEST = "former", "latest"
IDLE, ALIVE, DEAD = "idle", "alive", "dead"
NONE = -1


@attrs.frozen(kw_only=True)
class World:
    """What holds in one search. Times are in ticks."""

    lease: int = 6
    renew: int = 2
    band: int = 1
    settle: int = 1
    write_timeout: int = 1
    margin: int | None = None  #: None: as the lease rule has it
    punctual: bool = False  #: nothing delays an owner, and none crashes
    suspends: bool = False  #: a node's monotonic clock may stand still
    strays: bool = False  #: one clock may jump ahead out of the band; rows are watched
    shared_owner: bool = False  #: both nodes write the same owner id
    latches: bool = True  #: a dead handle stays dead
    phases: bool = True  #: False: only the commands that bear on time, in phase ready
    renews_from_outcome: bool = False  #: the next renewal is counted from the last outcome, not its queueing
    decide: Decide = decide

    @property
    def belief(self) -> int:
        """How long after queueing a successful write its execution may go on."""
        return self.lease - (self.band + self.settle if self.margin is None else self.margin)

    @property
    def skews(self) -> tuple[int, ...]:
        """What a clock may read beside true time."""
        return (*range(self.band + 1), *((STRAY,) if self.strays else ()))

    @property
    def watch(self) -> int:
        """For how long a row is watched before it is taken over live."""
        return self.lease + self.band


class Node(NamedTuple):
    """One node, its clock, and the one execution it runs or ran."""

    skew: int = 0
    handle: str = IDLE
    latest: bool = False  #: its execution was the last to acquire
    lost: bool = False  #: it was told that its claim is lost
    deadline: int = 0  #: ticks until it stops by itself
    due: int = 0  #: ticks until its next renewal is queued; only in a punctual world
    queued: int = NONE  #: ticks since its pending write was queued, NONE if there is none
    watching: int = 0  #: for how many ticks it has seen the row unchanged; only in a straying world


class State(NamedTuple):
    row: int  #: the number of the row in `Rows`
    nodes: tuple[Node, Node]  #: in sorted order, since nodes differ in nothing but this


class Outcome(NamedTuple):
    """What a command makes of a row, in the search's spelling."""

    granted: bool
    lost: bool
    row: int
    takes: str = ""  #: "" if nothing was taken over, else `freed`, `expired` or `watched`


class Broken(Exception):
    """An invariant doesn't hold; the message names it."""


def check(holds: bool, invariant: str, text: str) -> None:
    if not holds:
        raise Broken(f"{invariant}: {text}")


# --- what may be asked -------------------------------------------------------------------------------


def timing_commands(fence: Fence, lease: int) -> Iterator[Fenced]:
    """The fenced commands that say until when the claim is held, and no more."""
    yield Renew(fence=fence, lease_ms=lease)
    yield Clear(fence=fence)
    yield HandOver(fence=fence)
    yield Expire(fence=fence)


def fenced_commands(row: Claim | None, fence: Fence, lease: int) -> Iterator[Fenced]:
    """Every fenced command that isn't a bug to ask of this row."""
    yield from timing_commands(fence, lease)
    yield Work(fence=fence, lease_ms=lease, settling=False)
    yield Work(fence=fence, lease_ms=lease, settling=True)
    yield Drop(fence=fence)
    phase = Phase.READY if row is None else row.phase
    targets = tuple(Phase) if phase in (Phase.CANCELLING, Phase.CANCELLED) else MOVES[phase]
    for target in targets:
        fitting: dict[Phase, Step] = {Phase.UNKNOWN: Open(message_id="msg", seq=1), Phase.CANCELLING: Keep()}
        yield Update(fence=fence, phase=target, step=fitting.get(target, Detach()), lease_ms=lease)


def plain_row(row: Claim | None) -> Claim | None:
    """The row with the names of the latest execution, and without what grows for ever."""
    if row is None:
        return None
    return attrs.evolve(
        row,
        execution_id=LATEST,
        owner_id=LATEST,
        generation=1,
        assistant_message_id=row.assistant_message_id and "msg",
        assistant_seq=0,
        created_at=0,
        version=1,
    )


def takeover(row: Claim, now: int) -> str:
    """In what state a row was that somebody took over."""
    return "freed" if row.expires_at <= 1 else "expired" if row.expires_at <= now else "watched"


class Rows:
    """The rows met so far, by number, and what each command makes of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.known: list[Claim | None] = [None]
        self.number: dict[Claim | None, int] = {None: 0}
        self.cells: dict[Cell, int] = {}
        self.fenced = functools.cache(self._fenced)
        self.acquired = functools.cache(self._acquired)
        self.requested = functools.cache(self._requested)
        self.aged = functools.cache(self._aged)
        self.live = functools.cache(self._live)

    def _owner(self, name: str) -> str:
        return LATEST if self.world.shared_owner else name

    def _keep(self, row: Claim | None) -> int:
        row = plain_row(row)
        if row not in self.number:
            self.number[row] = len(self.known)
            self.known.append(row)
        return self.number[row]

    def _ask(self, row: Claim | None, command: Command, now: int) -> Decision:
        cell = (None if row is None else row.phase, type(command))
        self.cells[cell] = self.cells.get(cell, 0) + 1
        return self.world.decide(row, FACTS, command, now)

    def _fenced(self, number: int, latest: bool, skew: int, only_renew: bool) -> tuple[Outcome, ...]:
        """Every different outcome of the fenced commands of the latest execution, or of a former one."""
        row, name, now = self.known[number], LATEST if latest else FORMER, NOW + skew
        fence = Fence(
            session_id="ses", execution_id=name, owner_id=self._owner(name), generation=1 if latest else 0
        )
        commands = (
            (Renew(fence=fence, lease_ms=self.world.lease),)
            if only_renew
            else fenced_commands(row, fence, self.world.lease)
            if self.world.phases
            else timing_commands(fence, self.world.lease)
        )
        found: dict[Outcome, None] = {}
        for command in commands:
            decision = self._ask(row, command, now)
            if isinstance(decision, Granted):
                check(latest, "I1", f"{command} was granted to a former execution")
                live = row is not None and row.expires_at > now
                check(live, "I3", f"{command} was granted on {row} at {now}")
                check(decision.row is None or decision.row.generation == 1, "I1", "a generation changed")
                found[Outcome(True, False, self._keep(decision.row))] = None
            else:
                found[Outcome(False, isinstance(decision, Lost), number)] = None
        return tuple(found)

    def _acquired(self, number: int, skew: int, version: int | None) -> Outcome:
        """What an acquire comes to; `version` is the version that was watched, 1 being the row's own."""
        row, now = self.known[number], NOW + skew
        command = Acquire(
            session_id="ses",
            execution_id="exe_fresh",
            owner_id=self._owner("own_fresh"),
            lease_ms=self.world.lease,
            watched=None if version is None else Watched(execution_id=LATEST, version=version),
        )
        decision = self._ask(row, command, now)
        if not isinstance(decision, Granted):
            return Outcome(False, False, number)
        assert decision.row is not None
        grown = decision.row.generation == FACTS.generation + 1
        check(grown, "I1", "an acquire didn't add one to the generation")
        takes = "" if row is None else takeover(row, now)
        check(takes != "watched" or version == 1, "I2", f"{row} was taken over live at {now}")
        return Outcome(True, False, self._keep(decision.row), takes)

    def _requested(self, number: int) -> tuple[int, ...]:
        """The rows after a request to the latest execution, and to a former one."""
        if not self.world.phases:
            return ()
        row = self.known[number]
        asked = []
        for name in (LATEST, FORMER):
            decision = self._ask(row, RequestInterrupt(session_id="ses", execution_id=name, seq=0), NOW)
            asked.append(self._keep(decision.row) if isinstance(decision, Granted) else number)
        return tuple(asked)

    def _aged(self, number: int) -> int:
        """The row one tick later. What has expired on every clock needs no count of how long ago."""
        row = self.known[number]
        if row is None or row.expires_at <= NOW:
            return number
        return self._keep(attrs.evolve(row, expires_at=row.expires_at - 1))

    def _live(self, number: int) -> bool:
        """True if the row is there and its holder hasn't freed it."""
        row = self.known[number]
        return row is not None and row.expires_at > 1
