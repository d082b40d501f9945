"""The steps in which a failing scenario is made smaller: from a scenario, those that have a little less.

A candidate needn't be valid: who takes a node away may leave a fault that names it. What must go together
goes together in one of the ways, so that no part of a world keeps another one from being tried without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import attrs

from engine.providers.script import Reply, ScriptError
from sim.scenario import (
    ALL_NODES,
    Action,
    After,
    Disk,
    Fault,
    Node,
    NodeClock,
    Scenario,
    Session,
    TapeSpec,
    Tool,
)

T = TypeVar("T")

Candidates = Iterator[Scenario]
Way = Callable[[Scenario], Candidates]

ACTS = ("faults", "actions")
PARTS = ("expect", "faults", "listeners", "followers", "actions", "locations", "tools")
HOLDING_NAMES = ("actions", "faults", "listeners", "followers", "expect")
"""The parts whose items name nodes and sessions."""

OF_SESSION = ("session", "claim", "events", "order", "requests", "status", "takeovers")
"""The keys that hold the name of a session."""


def fewer_items(scenario: Scenario) -> Candidates:
    """Without all, some, or one of its faults, listeners, clients …"""
    for part in PARTS:
        for kept, gone in _fewer(getattr(scenario, part)):
            smaller = attrs.evolve(scenario, **_one(part, kept))
            yield from _after_none_of(smaller, gone) if part in ACTS else (smaller,)


def fewer_sessions(scenario: Scenario) -> Candidates:
    """Without one of its sessions: whatever is about it goes, too, or is about another one."""
    for place, session in _last_first(scenario.sessions):
        rest = _without(scenario.sessions, place)
        smaller = attrs.evolve(scenario, sessions=rest)
        yield from _forgetting(smaller, OF_SESSION, session.name)
        yield _renaming(smaller, OF_SESSION, session.name, rest[0].name)


def fewer_nodes(scenario: Scenario) -> Candidates:
    """Without one of its nodes: whatever is about it goes, too, or is about another one."""
    for place, node in _last_first(scenario.nodes):
        rest = _without(scenario.nodes, place)
        smaller = attrs.evolve(scenario, nodes=rest)
        yield from _forgetting(smaller, ("node",), node.name)
        yield _renaming(smaller, ("node",), node.name, rest[0].name)


def plainer_acts(scenario: Scenario) -> Candidates:
    """A fault that strikes once, or one node only; actions and faults without what may be left out, and
    triggers that look at everybody."""
    for part in ACTS:
        for place, act in enumerate(getattr(scenario, part)):
            for key in ("session", "node"):
                if getattr(act.when, key, None) is not None:
                    plain = attrs.evolve(act, when=attrs.evolve(act.when, **_one(key, None)))
                    changed = _with(getattr(scenario, part), place, plain)
                    yield attrs.evolve(scenario, **_one(part, changed))
    for place, fault in enumerate(scenario.faults):
        for once in _plainer_fault(fault, scenario.nodes):
            yield attrs.evolve(scenario, faults=_with(scenario.faults, place, once))
    for place, action in enumerate(scenario.actions):
        for key in ("delivery", "input", "owner"):
            plainer = attrs.evolve(action, **_one(key, None))
            yield attrs.evolve(scenario, actions=_with(scenario.actions, place, plainer))


def _plainer_fault(fault: Fault, nodes: Sequence[Node]) -> Iterator[Fault]:
    yield attrs.evolve(fault, times=None, again_after_s=None)
    for key in ("owner", "session", "batches", "operations", "monotonic_stops", "applied"):
        yield attrs.evolve(fault, **_one(key, None))
    if fault.node == ALL_NODES:
        for node in nodes:
            yield attrs.evolve(fault, node=node.name)


def plainer_nodes(scenario: Scenario) -> Candidates:
    """A node with right clocks, with an owner id of its own, there from the start."""
    right = NodeClock()
    for place, node in enumerate(scenario.nodes):
        clocks = [right, attrs.evolve(node.clock, steps=())]
        clocks += [attrs.evolve(node.clock, boot_offset_ms=0, boot_for_s=0.0)]
        clocks += [attrs.evolve(node.clock, **_one(key, 0)) for key in ("offset_ms", "drift_ppm")]
        clocks += [attrs.evolve(node.clock, monotonic_ppm=0)]
        plain = [attrs.evolve(node, clock=clock) for clock in clocks]
        plain += [attrs.evolve(node, owner=None), attrs.evolve(node, starts_at_s=0.0)]
        for one in plain:
            yield attrs.evolve(scenario, nodes=_with(scenario.nodes, place, one))


def plainer_machine(scenario: Scenario) -> Candidates:
    """The engine's own configuration, and the database in memory."""
    for kept, _ in _fewer(tuple(scenario.config.items())):
        yield attrs.evolve(scenario, config=dict(kept))
    if scenario.disk is not None:
        yield attrs.evolve(scenario, disk=None)
        yield attrs.evolve(scenario, disk=Disk())


def plainer_sessions(scenario: Scenario) -> Candidates:
    """A model that says less, events that arrive as they were sent, no location."""
    for place, session in enumerate(scenario.sessions):
        for one in (
            *(attrs.evolve(session, mangle=kept) for kept, _ in _fewer(session.mangle)),
            attrs.evolve(session, location=None),
            *(attrs.evolve(session, replies=said) for said in _plainer_replies(session.replies)),
        ):
            yield attrs.evolve(scenario, sessions=_with(scenario.sessions, place, one))


def _plainer_replies(replies: tuple[Reply, ...]) -> Iterator[tuple[Reply, ...]]:
    """Nothing is plainer than the plain answer, not even to say nothing at all."""
    plain = Session(name="plain").replies
    if replies != plain:
        yield plain
        yield from (kept for kept, _ in _fewer(replies) if kept)
        yield from _shorter(replies)


def _shorter(replies: tuple[Reply, ...]) -> Iterator[tuple[Reply, ...]]:
    """One of the replies with fewer lines, where that can be played."""
    for place, reply in enumerate(replies):
        for kept, _ in _fewer(reply.lines):
            try:
                yield _with(replies, place, Reply(lines=kept))
            except ScriptError:
                continue


def plainer_tools(scenario: Scenario) -> Candidates:
    """A tool that always returns the same, and asks for nothing."""
    for place, tool in enumerate(scenario.tools):
        for one in _plainer_tool(tool):
            yield attrs.evolve(scenario, tools=_with(scenario.tools, place, one))


def _plainer_tool(tool: Tool) -> Iterator[Tool]:
    yield attrs.evolve(tool, results=None)
    yield from (attrs.evolve(tool, results=kept) for kept, _ in _fewer(tool.results or ()) if kept)
    yield attrs.evolve(tool, asks=None, session=None)
    yield attrs.evolve(tool, session=None)
    yield attrs.evolve(tool, repeat=1)
    yield attrs.evolve(tool, takes_ms=0)
    yield attrs.evolve(tool, ignores_cancel=False)


def calmer_tape(scenario: Scenario) -> Candidates:
    """The same with a whole stream of zeros, then with ever smaller pieces of one."""
    tape = scenario.tape
    if tape is None:
        return
    for field in attrs.fields(TapeSpec):
        values: tuple[int, ...] = getattr(tape, field.name)
        size = len(values)
        while size >= 1:
            for start in range(0, len(values), size):
                piece = values[start : start + size]
                if any(piece):
                    calm = (*values[:start], *(0 for _ in piece), *values[start + size :])
                    yield attrs.evolve(scenario, tape=attrs.evolve(tape, **_one(field.name, _trimmed(calm))))
            size //= 4


WAYS: Sequence[Way] = (
    fewer_items,
    fewer_sessions,
    fewer_nodes,
    plainer_acts,
    plainer_nodes,
    plainer_machine,
    plainer_sessions,
    plainer_tools,
    calmer_tape,
)
"""Those first that take most away."""


# --- what goes together ------------------------------------------------------------------------------


def _after_none_of(scenario: Scenario, gone: Sequence[Any]) -> Candidates:
    """Whoever waited for an act that is gone waits for what that act itself had waited for, or, since that
    may be nothing it could wait for, for nothing."""
    moments = {act.as_: (act.at_s, act.when) for act in gone if act.as_ is not None}

    def inherits(act: Any) -> Any:
        while isinstance(act.when, After) and act.when.after in moments:
            at_s, when = moments[act.when.after]
            act = attrs.evolve(act, at_s=at_s, when=when)
        return act

    def at_once(act: Any) -> Any:
        waited = isinstance(act.when, After) and act.when.after in moments
        return attrs.evolve(act, at_s=act.when.delay_s, when=None) if waited else act

    first = _each_act(scenario, inherits)
    yield first
    if first != scenario:
        yield _each_act(scenario, at_once)


def _each_act(scenario: Scenario, change: Callable[[Any], Any]) -> Scenario:
    changed: dict[str, Any] = {part: tuple(map(change, getattr(scenario, part))) for part in ACTS}
    return attrs.evolve(scenario, **changed)


def _forgetting(scenario: Scenario, keys: Sequence[str], name: str) -> Candidates:
    """Without the items that have the name in one of these keys, be it in their trigger."""
    kept: dict[str, Any] = {}
    gone: list[Action | Fault] = []
    for part in HOLDING_NAMES:
        items = getattr(scenario, part)
        named = [_names(item, keys, name) or _names(_when(item), keys, name) for item in items]
        kept[part] = tuple(item for item, is_named in zip(items, named, strict=True) if not is_named)
        if part in ACTS:
            gone += [item for item, is_named in zip(items, named, strict=True) if is_named]
    if "session" in keys:
        tools = [
            attrs.evolve(tool, session=None) if tool.session == name else tool for tool in scenario.tools
        ]
        kept["tools"] = tuple(tools)
    yield from _after_none_of(attrs.evolve(scenario, **kept), gone)


def _names(thing: Any, keys: Sequence[str], name: str) -> bool:
    return any(getattr(thing, key, None) == name for key in keys)


def _when(item: Any) -> Any:
    return getattr(item, "when", None)


def _renaming(scenario: Scenario, keys: Sequence[str], name: str, other: str) -> Scenario:
    """With the other name in each of these keys that has the name."""

    def renamed(thing: Any) -> Any:
        if _when(thing) is not None:
            thing = attrs.evolve(thing, when=renamed(_when(thing)))
        return attrs.evolve(thing, **{key: other for key in keys if _names(thing, (key,), name)})

    parts = (*HOLDING_NAMES, "tools") if "session" in keys else HOLDING_NAMES
    changed: dict[str, Any] = {part: tuple(map(renamed, getattr(scenario, part))) for part in parts}
    return attrs.evolve(scenario, **changed)


# --- less of something -------------------------------------------------------------------------------


def _fewer(items: Sequence[T]) -> Iterator[tuple[tuple[T, ...], tuple[T, ...]]]:
    """(what is kept, what is gone): without all of them, then without ever smaller pieces, the last first."""
    size = len(items)
    while size >= 1:
        for start in reversed(range(0, len(items), size)):
            yield (*items[:start], *items[start + size :]), tuple(items[start : start + size])
        size //= 2


def _last_first(items: Sequence[T]) -> Iterator[tuple[int, T]]:
    """(place, item) for each, if there are several."""
    yield from reversed(list(enumerate(items)) if len(items) > 1 else [])


def _with(items: tuple[T, ...], place: int, item: T) -> tuple[T, ...]:
    return (*items[:place], item, *items[place + 1 :])


def _without(items: tuple[T, ...], place: int) -> tuple[T, ...]:
    return (*items[:place], *items[place + 1 :])


def _one(key: str, value: object) -> dict[str, Any]:
    return {key: value}


def _trimmed(values: tuple[int, ...]) -> tuple[int, ...]:
    end = len(values)
    while end and values[end - 1] == 0:
        end -= 1
    return values[:end]
