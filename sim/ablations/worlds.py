"""Small worlds, each made so that one missing protection shows. What varies from seed to seed is drawn.

Session `s` gets its first input at node `a` at once. A lease is 30 s, a sweep comes every 5 s, so a claim
whose owner went silent at the start is taken up between 30 and 36 s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from engine.errors import StoreFull
from engine.providers.script import Reply, parse_reply
from engine.records import EventRow
from engine.store.transaction import SqliteTransaction
from sim.ablations.patching import patched
from sim.generate.worlds import generate
from sim.scenario import (
    Action,
    ClockStep,
    Fault,
    Follower,
    Node,
    NodeClock,
    OnEvent,
    Scenario,
    Session,
    Tool,
)
from sim.scenario.values import Window
from sim.tape import Tape

T = TypeVar("T")
Line = Mapping[str, Any]

STOP: Line = {"finish": "stop"}
CALLS: Line = {"finish": "tool_calls"}
NEVER_KEPT: Sequence[Line] = ({"text": "Never kept", "chunks": 3, "every_ms": 150}, STOP)
LONG: Sequence[Line] = ({"text": "Hello there", "chunks": 2, "every_ms": 20_000}, STOP)
OPEN_FOR_LONG: Sequence[Line] = ({"text": "Let me see", "chunks": 2, "every_ms": 60_000}, STOP)
SHORT: Sequence[Line] = ({"text": "Done"}, STOP)
ONE_CALL: Sequence[Line] = ({"call": "c1", "tool": "slow", "input": {}}, CALLS)
CALL_AND_WAIT: Sequence[Line] = (
    {"text": "Let me look"},
    {"call": "c1", "tool": "slow", "input": {}},
    {"stall_ms": 60_000},
    CALLS,
)
MANY_EVENTS: Sequence[Line] = (
    *({"text": f"Part {number}", "delay_ms": 100} for number in range(6)),
    {"call": "c1", "tool": "quick", "input": {}},
    {"call": "c2", "tool": "slow", "input": {}},
    CALLS,
)

TOOLS = (Tool(name="quick", output="42"), Tool(name="slow", output="late", takes_ms=3_000))

A, B = Node(name="a"), Node(name="b", starts_at_s=0.2)
SHARED = (
    Node(name="a", owner="slot-1", sweep=False),
    Node(name="b", owner="slot-1", starts_at_s=0.2),
)


def _pick(tape: Tape, label: str, options: Sequence[T]) -> T:
    return options[tape.draw("faults", label, len(options))]


def _send(node: str = "a", at_s: float = 0.0, **more: Any) -> Action:
    return Action(do="send", node=node, session=more.pop("session", "s"), text="Hello", at_s=at_s, **more)


def _replies(*replies: Sequence[Line]) -> tuple[Reply, ...]:
    return tuple(parse_reply(lines, "reply") for lines in replies)


def _world(name: str, *replies: Sequence[Line], nodes: Sequence[Node] = (A,), **parts: Any) -> Scenario:
    """One session with these replies, one input at the start, and `parts`."""
    return Scenario(
        proves="A world in which one missing protection shows.",
        name=name,
        nodes=tuple(nodes),
        sessions=parts.pop("sessions", (Session(name="s", replies=_replies(*replies)),)),
        tools=TOOLS,
        actions=(_send(), *parts.pop("actions", ())),
        **parts,
    )


# --- who slept, stalled or died ----------------------------------------------------------------------


def slept_with_shared_owner(tape: Tape, name: str) -> Scenario:
    """`a` sleeps past its lease; `b`, with the same owner id, has taken over when it wakes."""
    at_s = _pick(tape, "asleep at", (0.1, 0.2, 0.3, 0.4))
    asleep = Fault(kind="suspend", node="a", at_s=at_s, for_s=_pick(tape, "for", (38.0, 45.0, 52.0)))
    return _world(name, NEVER_KEPT, LONG, nodes=SHARED, faults=(asleep,))


def slept_alone(tape: Tape, name: str) -> Scenario:
    """`a` sleeps past its lease, and nobody is there to take over."""
    at_s = _pick(tape, "asleep at", (0.1, 0.2, 0.3, 0.4))
    asleep = Fault(kind="suspend", node="a", at_s=at_s, for_s=_pick(tape, "for", (31.0, 45.0)))
    return _world(name, NEVER_KEPT, SHORT, faults=(asleep,))


def slept_and_set_back(tape: Tape, name: str) -> Scenario:
    """`a` wakes, is refused once as its lease is over, and then its clock steps back before its end."""
    for_s = _pick(tape, "for", (21.0, 22.0, 23.0))
    back = Node(name="a", clock=NodeClock(steps=(ClockStep(at_s=10.5 + for_s, by_ms=-5_000),)))
    asleep = Fault(kind="suspend", node="a", at_s=0.2, for_s=for_s)
    return _world(name, OPEN_FOR_LONG, SHORT, nodes=(back,), faults=(asleep,))


def stalled_before_a_start(tape: Tape, name: str) -> Scenario:
    """`a` stands still past its lease just before it would open a request, or start a tool."""
    window: Window = _pick(tape, "window", ("after_commit", "notify", "after_notify"))
    event = _pick(tape, "event", ("step.started", "tool.called"))
    still = Fault(kind="stall", node="a", when=OnEvent(event=event, window=window, node="a"), for_s=50.0)
    return _world(name, ONE_CALL, LONG, nodes=(A, B), faults=(still,))


def slept_before_clearing(tape: Tape, name: str) -> Scenario:
    """`a` sleeps between settling an interrupt and clearing; when it wakes, `b` executes the next turn."""
    window: Window = _pick(tape, "window", ("after_commit", "notify", "after_notify"))
    when = OnEvent(event="execution.interrupted", window=window, node="a")
    return _world(
        name,
        OPEN_FOR_LONG,
        LONG,
        nodes=(attrs.evolve(A, sweep=False), B),
        actions=(Action(do="interrupt", node="a", session="s", at_s=1.0), _send("b", 40.0)),
        faults=(Fault(kind="suspend", node="a", when=when, for_s=_pick(tape, "for", (50.0, 60.0))),),
    )


def slept_during_a_tool(tape: Tape, name: str) -> Scenario:
    """`a` sleeps while its tool works; `b` has settled the call when the result comes."""
    window: Window = _pick(tape, "window", ("after_commit", "notify", "after_notify"))
    when = OnEvent(event="tool.called", window=window, node="a")
    asleep = Fault(kind="suspend", node="a", when=when, for_s=_pick(tape, "for", (40.0, 45.0, 50.0)))
    return _world(name, CALL_AND_WAIT, LONG, nodes=(attrs.evolve(A, sweep=False), B), faults=(asleep,))


def slept_before_promoting(tape: Tape, name: str) -> Scenario:
    """`a` sleeps with its promotion on the way; when it wakes, `b` executes and one more steer waits."""
    when = OnEvent(event="input.promoted", window="before_commit", node="a")
    return _world(
        name,
        LONG,
        nodes=(attrs.evolve(A, sweep=False), B),
        actions=(_send("b", 40.0),),
        faults=(Fault(kind="suspend", node="a", when=when, for_s=_pick(tape, "for", (42.0, 45.0))),),
    )


def died_after_a_request_to_stop(tape: Tape, name: str) -> Scenario:
    """`a` is dead when an interrupt is asked for at `b`, which has given up waiting when it takes over."""
    return _world(
        name,
        OPEN_FOR_LONG,
        SHORT,
        nodes=(A, B),
        actions=(
            Action(do="interrupt", node="b", session="s", at_s=_pick(tape, "asked at", (2.0, 4.0, 8.0))),
        ),
        faults=(Fault(kind="power_cut", node="a", at_s=1.0),),
    )


def cut_while_settling(tape: Tape, name: str) -> Scenario:
    """`a` loses its power while the closing events of an interrupt are on their way."""
    when = OnEvent(event="step.interrupted", window="before_commit", node="a")
    return _world(
        name,
        _pick(tape, "reply", (OPEN_FOR_LONG, ONE_CALL)),
        SHORT,
        nodes=(A, B),
        actions=(Action(do="interrupt", node="a", session="s", at_s=1.0),),
        faults=(Fault(kind="power_cut", node="a", when=when),),
    )


def brought_down_again(tape: Tape, name: str) -> Scenario:
    """Whoever takes the session up loses its power at once; one take-over is the budget."""
    window: Window = _pick(tape, "window", ("after_commit", "notify"))
    started = OnEvent(event="execution.started", window=window, node="b")
    return _world(
        name,
        OPEN_FOR_LONG,
        SHORT,
        config={"takeovers_max": 1},
        nodes=(A, B, Node(name="c", starts_at_s=50.0)),
        faults=(
            Fault(kind="power_cut", node="a", at_s=1.0),
            Fault(kind="power_cut", node="b", when=started),
        ),
    )


def dated_far_ahead(tape: Tape, name: str) -> Scenario:
    """A clock that is far ahead dates a claim, and then its node dies."""
    ahead = NodeClock(offset_ms=_pick(tape, "ahead by", (600_000, 86_400_000)))
    return _world(
        name,
        OPEN_FOR_LONG,
        SHORT,
        nodes=(attrs.evolve(A, clock=ahead), Node(name="b")),
        faults=(Fault(kind="power_cut", node="a", at_s=3.0),),
    )


def cancelled_in_a_step(tape: Tape, name: str) -> Scenario:
    """The host cancels the engine of `a` while a step is open."""
    at_s = _pick(tape, "cancelled at", (0.5, 1.0, 2.0))
    return _world(
        name,
        _pick(tape, "reply", (OPEN_FOR_LONG, ONE_CALL)),
        SHORT,
        nodes=(A, B),
        faults=(Fault(kind="cancel", node="a", at_s=at_s),),
    )


# --- nothing goes wrong but the schedule -------------------------------------------------------------


def quiet_for_long(tape: Tape, name: str) -> Scenario:
    """A step that writes nothing for most of a minute."""
    quiet: Line = {"text": "Slow", "chunks": 6, "every_ms": _pick(tape, "every", (9_000, 10_000))}
    return _world(name, (quiet, STOP), SHORT, nodes=(A, B))


def short_lease(tape: Tape, name: str) -> Scenario:
    """A lease that leaves its holder less time than it needs to renew."""
    lease_ms = _pick(tape, "lease", (11_000, 12_000, 14_000))
    return _world(name, OPEN_FOR_LONG, SHORT, config={"lease_ms": lease_ms}, nodes=(A, B))


def many_events(tape: Tape, name: str) -> Scenario:
    """Texts and tools, and more inputs while they come."""
    sends = [_send("a", 0.1 * (1 + tape.draw("faults", "sent at", 8)), delivery="queue") for _ in range(3)]
    return _world(name, MANY_EVENTS, SHORT, actions=sends)


def followed(tape: Tape, name: str) -> Scenario:
    """Followers that come while events are written."""
    followers = [
        Follower(node="a", session="s", at_s=0.1 * tape.draw("faults", "follows at", 8)) for _ in range(3)
    ]
    return _world(name, MANY_EVENTS, SHORT, followers=tuple(followers))


def woken_while_parked(tape: Tape, name: str) -> Scenario:
    """An interrupt parks what waits, and then the session is woken."""
    wake = Action(do="wake", node="a", session="s", at_s=_pick(tape, "woken at", (1.5, 3.0, 7.0)))
    stop = Action(do="interrupt", node="a", session="s", at_s=1.0)
    return _world(name, OPEN_FOR_LONG, SHORT, actions=(_send(at_s=0.5, delivery="queue"), stop, wake))


def cut_off_after_text(tape: Tape, name: str) -> Scenario:
    """A provider fails after it has said something."""
    cut: Line = _pick(tape, "how", ({"cut": "reset"}, {"error": "overloaded"}))
    return _world(name, ({"text": "Half an"}, cut), SHORT)


def sent_at_the_end(tape: Tape, name: str) -> Scenario:
    """Inputs that arrive while the answer before them ends."""
    reply: Sequence[Line] = ({"text": "Done", "delay_ms": 100}, STOP)
    return _world(name, reply, actions=[_send(at_s=0.1 * (1 + number % 2)) for number in range(4)])


def busy_node(tape: Tape, name: str) -> Scenario:
    """Six sessions of one node, whose writes share batches."""
    others = tuple("tuvwx")
    sessions = tuple(Session(name=one, replies=_replies(MANY_EVENTS, SHORT)) for one in ("s", *others))
    return _world(name, sessions=sessions, actions=tuple(_send(session=one) for one in others))


@contextlib.contextmanager
def database_full_at_times(tape: Tape) -> Iterator[None]:
    """A few inserted events find the database full, for which SQLite ends their whole transaction."""
    left = [12 + tape.draw("faults", "full after", 12) for _ in range(5)]
    original = SqliteTransaction.append_event

    def append_event(self: SqliteTransaction, row: EventRow) -> None:
        if left:
            left[0] -= 1
            if left[0] < 0:
                left.pop(0)
                self._connection.execute("ROLLBACK")
                self._ended = StoreFull("the database is full")
                raise self._ended
        original(self, row)

    with patched(SqliteTransaction, "append_event", append_event):
        yield


# --- generated ---------------------------------------------------------------------------------------


def generated(tape: Tape, name: str) -> Scenario:
    """Any world that a campaign might draw."""
    return generate(tape, name)


def generated_with_shared_owner(tape: Tape, name: str) -> Scenario:
    """The same, with one owner id for all nodes."""
    world = generate(tape, name)
    return attrs.evolve(world, nodes=tuple(attrs.evolve(node, owner="slot-1") for node in world.nodes))
