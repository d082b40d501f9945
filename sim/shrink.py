"""Makes a failing scenario small: what isn't needed for the same rule to break is taken away.

First the world (faults, clients, listeners, sessions, nodes), then the draws of its tape, towards zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from sim.scenario import Scenario, TapeSpec

STILL_FAILS = Callable[[Scenario], bool]

PARTS = ("faults", "listeners", "followers", "actions", "expect", "sessions", "nodes", "tools")


def shrink(scenario: Scenario, still_fails: STILL_FAILS, *, runs_max: int = 400) -> tuple[Scenario, int]:
    """The smallest scenario found that still fails, and how many runs that took.

    `still_fails` runs a candidate; one that isn't valid any more simply doesn't fail.
    """
    runs = 0

    def fails(candidate: Scenario) -> bool:
        nonlocal runs
        runs += 1
        return still_fails(candidate)

    smaller = True
    while smaller and runs < runs_max:
        smaller = False
        for candidate in _candidates(scenario):
            if runs >= runs_max:
                break
            if fails(candidate):
                scenario, smaller = candidate, True
                break
    return scenario, runs


def _candidates(scenario: Scenario) -> Iterator[Scenario]:
    for part in PARTS:
        yield from _without_one(scenario, part)
    if scenario.tape is not None:
        yield from _calmer(scenario, scenario.tape)


def _without_one(scenario: Scenario, part: str) -> Iterator[Scenario]:
    items = getattr(scenario, part)
    least = 1 if part in ("nodes", "sessions") else 0
    if len(items) <= least:
        return
    for place in reversed(range(len(items))):
        rest = (*items[:place], *items[place + 1 :])
        changed: dict[str, Any] = {part: rest}
        candidate = attrs.evolve(scenario, **changed)
        if _refers_to_known(candidate):
            yield candidate


def _refers_to_known(scenario: Scenario) -> bool:
    """Whether every node and session that is mentioned is there."""
    nodes = {node.name for node in scenario.nodes}
    sessions = {session.name for session in scenario.sessions}
    items: list[Any] = [
        *scenario.actions,
        *scenario.faults,
        *scenario.listeners,
        *scenario.followers,
    ]
    acts = {action.as_ for action in scenario.actions} | {fault.as_ for fault in scenario.faults}
    for item in items:
        if item.node not in nodes or getattr(item, "session", None) not in (None, *sessions):
            return False
        when = getattr(item, "when", None)
        if getattr(when, "node", None) not in (None, *nodes):
            return False
        if getattr(when, "after", None) not in (None, *acts):
            return False
    return True


def _calmer(scenario: Scenario, tape: TapeSpec) -> Iterator[Scenario]:
    """The same with a whole stream of zeros, then with ever smaller pieces of one."""
    for field in attrs.fields(TapeSpec):
        values: tuple[int, ...] = getattr(tape, field.name)
        size = len(values)
        while size >= 1:
            for start in range(0, len(values), size):
                piece = values[start : start + size]
                if any(piece):
                    calm = (*values[:start], *(0 for _ in piece), *values[start + size :])
                    yield attrs.evolve(scenario, tape=attrs.evolve(tape, **{field.name: _trimmed(calm)}))
            size //= 4


def _trimmed(values: tuple[int, ...]) -> tuple[int, ...]:
    end = len(values)
    while end and values[end - 1] == 0:
        end -= 1
    return values[:end]
