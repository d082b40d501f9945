"""Worlds from a tape: who is there, what clients do, what goes wrong. Every choice is a draw, 0 the plainest.

Each world switches whole kinds of trouble on or off first ("swarm testing": Groce et al., ISSTA 2012), so
that a campaign also sees worlds in which one kind stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import attrs

from engine.records import JSON
from sim.disk.draws import disk_faults, machine_faults
from sim.generate.faults import Mishaps
from sim.generate.replies import Speech
from sim.scenario import (
    Action,
    After,
    Fault,
    Follower,
    Listener,
    Node,
    OnEvent,
    OnGate,
    Scenario,
    Session,
    Tool,
)
from sim.scenario.values import STORE_ERRORS, Window
from sim.tape import Tape

T = TypeVar("T")

Verb = Literal["interrupt", "resume", "wake", "cancel_input", "release", "delete", "discard"]

NODE_NAMES = ("a", "b", "c", "d", "e", "f", "g", "h")
SESSION_NAMES = ("s", "t", "u", "v")
NODES = (1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3, 4, 3, 2, 4, 5, 1, 2, 3, 6, 7, 8)
SESSIONS = (1, 2, 1, 2, 3, 2, 4)
"""How many there are: small worlds are far more likely, as large ones cost time and hide what matters."""

FOLLOWED = 24
"""Followers begin behind one of the first so many positions, which a short log may not have."""

RARELY = 6
"""One world in so many has sessions whose logs are damaged: there is little to see of them afterwards."""

MANGLED = 4
"""One world in so many has events that don't arrive as they were sent: they mostly end a turn at once."""

ON_DISK = 5
"""One world in so many has its database on a simulated disk, and something goes wrong with that."""

INPUTS = ("in1", "in2")
"""Ids of inputs that clients choose themselves, so that they can send them twice and cancel them."""

GATES = 220
"""Gate triggers fall into the first so many gates; later ones seldom come."""

WINDOWS: Sequence[Window] = ("notify", "before_commit", "after_commit", "after_notify")
INSIDE = (None, None, "begin", "work")
"""Where the store's error comes from: half of them take whole batches, the others one statement."""

EVENTS = (
    "step.started",
    "text.started",
    "tool.called",
    "step.ended",
    "step.failed",
    "step.interrupted",
    "execution.started",
    "input.promoted",
    "retry.scheduled",
    "tool.succeeded",
    "text.ended",
    "execution.interrupted",
)

TOOLS = (
    Tool(name="quick", output="42"),
    Tool(name="slow", output={"rows": 3}, takes_ms=4_000),
    Tool(name="stubborn", output="late", takes_ms=30_000, ignores_cancel=True),
)


ODD_TOOLS = (
    Tool(name="odd", results=("first", "second", {"rows": [3]})),
    Tool(name="odd", fails="no such row"),
    Tool(name="odd", crashes="a bug", takes_ms=700),
    Tool(name="odd", unfit="object"),
    Tool(name="odd", unfit="nan"),
    Tool(name="odd", unfit="number"),
    Tool(name="odd", unfit="deep"),
    Tool(name="odd", output="0123456789", repeat=40_000),
    Tool(name="odd", output="sent", asks="send"),
    Tool(name="odd", output="stopped?", asks="interrupt", takes_ms=200),
    Tool(name="odd", output="stopped?", asks="interrupt", session="s"),
    Tool(name="odd", asks="resume", session="s"),
    Tool(name="odd", asks="delete"),
    Tool(name="odd", asks="delete", session="s", takes_ms=200),
)
"""One of these is in a world whose tools may be odd."""


def generate(
    tape: Tape, name: str, calls: Mapping[str, Sequence[Mapping[str, JSON]]] = MappingProxyType({})
) -> Scenario:
    """The world that the tape's next draws describe. `calls` are a project's own tools and what to call them
    with: its model then calls these, and not the tools of this module."""
    return _Generator(tape, calls).scenario(name)


def disturb(tape: Tape, base: Scenario, name: str) -> Scenario:
    """`base` with the faults, listeners and followers on top that the tape's next draws describe."""
    return _Generator(tape, {}).disturbed(base, name)


class _Generator:
    def __init__(self, tape: Tape, calls: Mapping[str, Sequence[Mapping[str, JSON]]]) -> None:
        self._tape = tape
        self._speech = Speech(tape, calls)
        self._mishaps = Mishaps(tape)

    def pick(self, stream: str, label: str, options: Sequence[T]) -> T:
        return options[self._tape.draw(stream, label, len(options))]

    def swarm(self, label: str) -> bool:
        return bool(self._tape.draw("faults", f"swarm {label}", 2))

    def some(self, label: str, most: int, make: Callable[[], T], *, least: int = 0) -> tuple[T, ...]:
        count = least + self._tape.draw("faults", f"number of {label}", most - least + 1)
        return tuple(make() for _ in range(count))

    def scenario(self, name: str) -> Scenario:
        self.nodes = [
            Node(name=name, owner=self._mishaps.owner(name), clock=self._mishaps.clock())
            for name in self._node_names()
        ]
        mangled = self._tape.draw("provider", "swarm mangled events", MANGLED) == MANGLED - 1
        names = SESSION_NAMES[: self.pick("provider", "sessions", SESSIONS)]
        self.sessions = [Session(name=one, replies=self._speech.replies()) for one in names]
        if mangled:
            made = [self.some("mangled events", 3, self._speech.mangle, least=1) for _ in names]
            pairs = zip(self.sessions, made, strict=True)
            self.sessions = [attrs.evolve(one, mangle=mangles) for one, mangles in pairs]
        self._damaged = self._tape.draw("faults", "swarm damage", RARELY) == RARELY - 1
        odd = [self.pick("provider", "odd tool", ODD_TOOLS)] if self.swarm("odd tools") else []
        if self._damaged:
            odd = [one for one in odd if one.asks != "delete"]
        wrong = self.swarm("faults"), self.swarm("listeners"), self.swarm("store"), self.swarm("followers")
        world = Scenario(
            proves="A generated world keeps every invariant.",
            name=name,
            nodes=tuple(self.nodes),
            sessions=tuple(self.sessions),
            tools=(*TOOLS, *odd),
            actions=self._actions(),
            faults=(
                *(self.some("faults", 3, self._fault, least=1) if wrong[0] else ()),
                *(self.some("store faults", 2, self._store_fault, least=1) if wrong[2] else ()),
            ),
            listeners=self.some("listeners", 2, self._listener, least=1) if wrong[1] else (),
            followers=self.some("followers", 2, self._follower, least=1) if wrong[3] else (),
        )
        if self._tape.draw("faults", "swarm disk", ON_DISK) < ON_DISK - 1:
            return world
        disk, failing = disk_faults(self._tape)
        return attrs.evolve(world, disk=disk, faults=(*world.faults, *failing))

    def disturbed(self, base: Scenario, name: str) -> Scenario:
        self.nodes, self.sessions = list(base.nodes), list(base.sessions)
        wrong = self.swarm("faults"), self.swarm("listeners"), self.swarm("store"), self.swarm("followers")
        faults = self.some("faults", 3, self._fault, least=1) if wrong[0] else ()
        store = self.some("store faults", 2, self._store_fault, least=1) if wrong[2] else ()
        heard = self.some("listeners", 2, self._listener, least=1) if wrong[1] else ()
        follow = self.some("followers", 2, self._follower, least=1) if wrong[3] and self.sessions else ()
        machine = machine_faults(self._tape) if base.disk and self.swarm("disk") else ()
        return attrs.evolve(
            base,
            name=name,
            faults=(*base.faults, *faults, *store, *machine),
            listeners=(*base.listeners, *heard),
            followers=(*base.followers, *follow),
        )

    def _node_names(self) -> Sequence[str]:
        return NODE_NAMES[: self.pick("faults", "nodes", NODES)]

    def _seconds(self, stream: str) -> float:
        return self.pick(stream, "seconds", (0.0, 0.1, 0.5, 1.0, 3.0, 8.0, 15.0, 25.0, 40.0))

    # --- clients -------------------------------------------------------------------------------------

    def _node(self) -> str:
        return self.pick("faults", "node", self.nodes).name

    def _session(self) -> str:
        return self.pick("faults", "session", self.sessions).name

    def _actions(self) -> tuple[Action, ...]:
        interrupts, busy, tidy = self.swarm("interrupts"), self.swarm("inbox"), self.swarm("housekeeping")
        return (
            *self._sends(busy),
            *(self.some("interrupts", 3, self._interrupt, least=1) if interrupts else ()),
            *(self.some("housekeeping", 3, self._housekeeping, least=1) if tidy else ()),
            *(self._damage() if self._damaged else ()),
        )

    def _sends(self, busy: bool) -> list[Action]:
        sends = [
            Action(do="send", node=self._node(), session=one.name, text="Good morning", at_s=0.0)
            for one in self.sessions
        ]
        more = self.some("sends", 3, self._send) if busy else ()
        return [*sends, *more]

    def _send(self) -> Action:
        return Action(
            do="send",
            node=self._node(),
            session=self._session(),
            text="And then?",
            delivery=self.pick("faults", "delivery", ("steer", "queue")),
            input=self.pick("faults", "input", (None, None, *INPUTS)),
            at_s=self._seconds("faults"),
        )

    def _asks(self, do: Verb, **keys: Any) -> Action:
        return Action(do=do, node=self._node(), session=self._session(), **keys, **self._moment())

    def _interrupt(self) -> Action:
        return self._asks(self.pick("faults", "verb", ("interrupt", "interrupt", "resume")))

    def _housekeeping(self) -> Action:
        verbs: Sequence[Verb] = ("wake", "resume", "cancel_input", "release", "delete", "discard")
        verb = self.pick("faults", "verb", verbs[:4] if self._damaged else verbs)
        return self._asks(
            verb, input=self.pick("faults", "input", INPUTS) if verb == "cancel_input" else None
        )

    def _damage(self) -> list[Action]:
        """A log is damaged, and somebody lifts the quarantine or gives the session up. Nobody deletes it
        before: damage is done to logs that are there."""
        session = self._session()
        poison = Action(as_="damage", do="poison", node=self._node(), session=session, **self._moment())
        lifts: Sequence[Verb] = ("release", "discard")
        verb = self.pick("faults", "verb", lifts)
        when = After(after="damage", delay_s=self._seconds("faults"))
        return [poison, Action(do=verb, node=self._node(), session=session, when=when)]

    # --- faults --------------------------------------------------------------------------------------

    def _moment(self) -> dict[str, Any]:
        match self._tape.draw("faults", "moment", 3):
            case 0:
                return {"at_s": self._seconds("faults")}
            case 1:
                return {"when": OnGate(gate=1 + self._tape.draw("faults", "gate", GATES))}
            case _:
                return {
                    "when": OnEvent(
                        event=self.pick("faults", "event", EVENTS),
                        window=self.pick("faults", "window", WINDOWS),
                        nth=1 + self._tape.draw("faults", "nth", 2),
                    )
                }

    def _fault(self) -> Fault:
        return self._mishaps.fault([node.name for node in self.nodes], self._node(), self._moment())

    def _store_fault(self) -> Fault:
        node, error = self._node(), self.pick("faults", "error", STORE_ERRORS)
        batches = self.pick("faults", "batches", (1, 2, 5))
        inside = self.pick("faults", "inside", INSIDE)
        how: dict[str, Any] = {"inside": inside}
        if inside == "work":
            how["statement"] = self.pick("faults", "statement", (1, 2, 4))
        elif inside is None:
            how["applied"] = bool(self._tape.draw("faults", "applied", 2))
        return Fault(kind="store_error", node=node, error=error, batches=batches, **how, **self._moment())

    def _listener(self) -> Listener:
        return Listener(
            node=self._node(),
            event=self.pick("faults", "event", EVENTS),
            nth=self._tape.draw("faults", "nth", 3),
            does=self.pick("faults", "does", ("raises", "hangs", "cancelled")),
        )

    def _follower(self) -> Follower:
        return Follower(
            node=self._node(),
            session=self._session(),
            after_seq=self._tape.draw("faults", "after", FOLLOWED) - 1,
            at_s=self._seconds("faults"),
        )
