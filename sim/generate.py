"""Worlds from a tape: who is there, what clients do, what goes wrong. Every choice is a draw, 0 the plainest.

Each world switches whole kinds of trouble on or off first ("swarm testing": Groce et al., ISSTA 2012), so
that a campaign also sees worlds in which one kind stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from engine.providers.script import Reply, parse_reply
from sim.scenario import (
    Action,
    ClockStep,
    Fault,
    Follower,
    Listener,
    Node,
    NodeClock,
    OnEvent,
    OnGate,
    Scenario,
    Session,
    Tool,
)
from sim.scenario.values import STORE_ERRORS, Window
from sim.tape import Tape

T = TypeVar("T")

NODE_NAMES = ("a", "b", "c")
SESSION_NAMES = ("s", "t")
GATES = 220
"""Gate triggers fall into the first so many gates; later ones seldom come."""

WINDOWS: Sequence[Window] = ("notify", "before_commit", "after_commit", "after_notify")
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

REPLIES: Sequence[Sequence[Mapping[str, Any]]] = (
    ({"text": "Done"}, {"finish": "stop"}),
    ({"text": "A longer answer", "chunks": 3, "every_ms": 200}, {"finish": "stop"}),
    ({"call": "c1", "tool": "quick", "input": {"n": 1}}, {"finish": "tool_calls"}),
    (
        {"text": "Looking", "delay_ms": 300},
        {"call": "c1", "tool": "slow", "input": {}, "streamed": True},
        {"call": "c2", "tool": "quick", "input": {}},
        {"finish": "tool_calls"},
    ),
    ({"error": "rate_limit"},),
    ({"error": "rate_limit", "retry_after_s": 20.0},),
    ({"text": "Cut off"}, {"cut": "the connection was reset"}),
    ({"text": "Half"},),
    ({"reasoning": "Hm"}, {"text": "Slow", "chunks": 5, "every_ms": 9000}, {"finish": "stop"}),
    ({"event": "text_chunk", "id": "x", "text": "no start"}, {"finish": "stop"}),
    ({"call": "c1", "tool": "stubborn", "input": {}}, {"finish": "tool_calls"}),
    ({"call": "c1", "tool": "quick", "input_text": "{broken"}, {"finish": "tool_calls"}),
    ({"text": "Refused"}, {"finish": "content_filter"}),
    ({"error": "auth", "message": "no key"},),
    ({"text": "Closing badly"}, {"finish": "stop"}, {"on_close": "reset while closing"}),
    ({"text": "Stalling"}, {"stall_ms": 200_000}, {"finish": "stop"}),
)

TOOLS = (
    Tool(name="quick", output="42"),
    Tool(name="slow", output={"rows": 3}, takes_ms=4_000),
    Tool(name="stubborn", output="late", takes_ms=30_000, ignores_cancel=True),
)


def generate(tape: Tape, name: str) -> Scenario:
    """The world that the tape's next draws describe."""
    return _Generator(tape).scenario(name)


class _Generator:
    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def pick(self, stream: str, label: str, options: Sequence[T]) -> T:
        return options[self._tape.draw(stream, label, len(options))]

    def swarm(self, label: str) -> bool:
        return bool(self._tape.draw("faults", f"swarm {label}", 2))

    def some(self, label: str, most: int, make: Callable[[], T], *, least: int = 0) -> tuple[T, ...]:
        count = least + self._tape.draw("faults", f"number of {label}", most - least + 1)
        return tuple(make() for _ in range(count))

    def scenario(self, name: str) -> Scenario:
        self.nodes = [Node(name=name, clock=self._clock()) for name in self._node_names()]
        self.sessions = [
            Session(name=one, replies=self._replies())
            for one in SESSION_NAMES[: 1 + self._tape.draw("provider", "sessions", len(SESSION_NAMES))]
        ]
        clients = self.swarm("interrupts"), self.swarm("inbox")
        wrong = self.swarm("faults"), self.swarm("listeners"), self.swarm("store"), self.swarm("followers")
        return Scenario(
            proves="A generated world keeps every invariant.",
            name=name,
            nodes=tuple(self.nodes),
            sessions=tuple(self.sessions),
            tools=TOOLS,
            actions=(*self._sends(clients[1]), *(self._interrupts() if clients[0] else ())),
            faults=(
                *(self.some("faults", 3, self._fault, least=1) if wrong[0] else ()),
                *(self.some("store faults", 2, self._store_fault, least=1) if wrong[2] else ()),
            ),
            listeners=self.some("listeners", 2, self._listener, least=1) if wrong[1] else (),
            followers=self.some("followers", 2, self._follower, least=1) if wrong[3] else (),
        )

    def _node_names(self) -> Sequence[str]:
        return NODE_NAMES[: 1 + self._tape.draw("faults", "nodes", len(NODE_NAMES))]

    # --- clocks --------------------------------------------------------------------------------------

    def _clock(self) -> NodeClock:
        if not self.swarm("clock"):
            return NodeClock()
        steps = (ClockStep(at_s=self._seconds("clocks"), by_ms=self.pick("clocks", "step", (500, -500))),)
        return NodeClock(
            offset_ms=self.pick("clocks", "offset", (0, 900, -900, 1900, -1900)),
            drift_ppm=self.pick("clocks", "drift", (0, 50, -50)),
            monotonic_ppm=self.pick("clocks", "rate", (0, 100, -100)),
            steps=steps if self._tape.draw("clocks", "steps", 2) else (),
        )

    def _seconds(self, stream: str) -> float:
        return self.pick(stream, "seconds", (0.0, 0.1, 0.5, 1.0, 3.0, 8.0, 15.0, 25.0, 40.0))

    # --- providers -----------------------------------------------------------------------------------

    def _replies(self) -> tuple[Reply, ...]:
        count = 1 + self._tape.draw("provider", "number of replies", 4)
        drawn = [parse_reply(self.pick("provider", "reply", REPLIES), "reply") for _ in range(count)]
        return (*drawn, parse_reply(REPLIES[0], "reply"))

    # --- clients -------------------------------------------------------------------------------------

    def _node(self) -> str:
        return self.pick("faults", "node", self.nodes).name

    def _session(self) -> str:
        return self.pick("faults", "session", self.sessions).name

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
            at_s=self._seconds("faults"),
        )

    def _interrupts(self) -> list[Action]:
        made: list[Action] = []
        for _ in range(1 + self._tape.draw("faults", "number of interrupts", 3)):
            made.append(
                Action(
                    do=self.pick("faults", "verb", ("interrupt", "interrupt", "resume")),
                    node=self._node(),
                    session=self._session(),
                    **self._moment(),
                )
            )
        return made

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
        node = self._node()
        when = self._moment()
        match self._tape.draw("faults", "kind", 6):
            case 0:
                return Fault(kind="cancel", node=node, for_s=self._back_in(), **when)
            case 1:
                return Fault(kind="power_cut", node=node, for_s=self._back_in(), **when)
            case 2:
                return Fault(kind="stall", node=node, for_s=self._long(), **when)
            case 3:
                return Fault(kind="suspend", node=node, for_s=self._long(), **when)
            case 4:
                return Fault(kind="take_over", node=node, **when)
            case _:
                by_ms = self.pick("clocks", "step fault", (400, -400))
                return Fault(kind="clock_step", node=node, by_ms=by_ms, **when)

    def _back_in(self) -> float:
        return self.pick("faults", "back in", (1.0, 5.0, 20.0, 45.0))

    def _long(self) -> float:
        return self.pick("faults", "for", (1.0, 12.0, 21.0, 31.0, 36.0, 61.0))

    def _store_fault(self) -> Fault:
        return Fault(
            kind="store_error",
            node=self._node(),
            error=self.pick("faults", "error", STORE_ERRORS),
            batches=self.pick("faults", "batches", (1, 2, 5)),
            applied=bool(self._tape.draw("faults", "applied", 2)),
            **self._moment(),
        )

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
            after_seq=self.pick("faults", "after", (-1, 0, 3)),
            at_s=self._seconds("faults"),
        )
