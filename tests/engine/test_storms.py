"""Storms of Ctrl-C and cancellations over real publishers: memory and database agree."""

from __future__ import annotations

import functools
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from engine.log import Log, Published
from engine.plan import Plan
from tests.engine.real import (
    created,
    open_log,
    publish,
    renamed,
    stored_in,
)
from tests.engine.strikes import Strike, interrupted, striking, struck_anywhere

SESSIONS = ["ses_a", "ses_b", "ses_c"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a new database may go."""
    return tmp_path / "storm.db"


@attrs.define
class Round:
    """Publishers whose memory is what their `after_commit` saw, and somebody who cancels at random."""

    log: Log
    chance: random.Random
    memory: dict[str, list[tuple[int, str]]]
    scopes: dict[int, trio.CancelScope] = attrs.field(factory=dict)
    cancelled: int = 0

    async def publisher(self, name: int) -> None:
        for number in range(20):
            session_id = self.chance.choice(SESSIONS)
            titles = [f"{name}/{number}/{part}" for part in range(1 + number % 3)]
            with trio.CancelScope() as scope:
                self.scopes[name] = scope
                await publish(
                    self.log,
                    *(renamed(session_id, title) for title in titles),
                    after_commit=self._remember(session_id, titles),
                )

    def _remember(self, session_id: str, titles: list[str]) -> Callable[[Published[None]], None]:
        def after_commit(published: Published[None]) -> None:
            seqs = [item.seq for item in published.stored]
            self.memory[session_id] += zip(seqs, titles, strict=True)

        return after_commit

    async def canceller(self) -> None:
        while True:
            for _ in range(self.chance.randrange(8)):
                await trio.lowlevel.checkpoint()
            if self.scopes:
                self.chance.choice(list(self.scopes.values())).cancel()
                self.cancelled += 1
            await trio.lowlevel.checkpoint()

    async def storm(self) -> None:
        async with trio.open_nursery() as storm:
            storm.start_soon(self.canceller)
            async with trio.open_nursery() as publishers:
                for name in range(1, 6):
                    publishers.start_soon(self.publisher, name)
                await self.publisher(0)  # in Trio's main task, where a Ctrl-C goes by preference
            storm.cancel_scope.cancel()


async def _titles(log: Log, session_id: str) -> list[tuple[int, str]]:
    return [(item.seq, item.event.title) for item in await stored_in(log, session_id)]  # type: ignore[attr-defined]


def _fresh(path: Path) -> dict[str, list[tuple[int, str]]]:
    async def main() -> None:
        async with open_log(path) as log:
            for session_id in SESSIONS:
                await publish(log, created(session_id, "created"))

    trio.run(main)
    return {session_id: [(0, "created")] for session_id in SESSIONS}


def _assert_agree(path: Path, memory: dict[str, list[tuple[int, str]]]) -> None:
    async def main() -> None:
        async with open_log(path) as log:
            for session_id in SESSIONS:
                assert await _titles(log, session_id) == memory[session_id]

    trio.run(main)


def test_cancel_storm(path: Path) -> None:
    """Whatever is cancelled when, what `after_commit` saw is exactly what is stored."""
    memory = _fresh(path)
    cancelled = 0
    for seed in range(8):

        async def main(seed: int = seed) -> None:
            nonlocal cancelled
            async with open_log(path) as log:
                one = Round(log, random.Random(seed), memory)
                await one.storm()
                cancelled += one.cancelled

        trio.run(main)
        _assert_agree(path, memory)
    assert cancelled > 100
    assert any(len(seen) > 10 for seen in memory.values())


@struck_anywhere
def test_interrupt_storm(path: Path) -> None:
    """A Ctrl-C at whatever instruction, in whatever task, among cancellations: memory and database agree."""
    memory = _fresh(path)
    struck = 0
    for seed in range(50):
        chance = random.Random(seed)

        async def main(strike: Strike, chance: random.Random = chance) -> None:
            async with open_log(path) as log:
                strike(chance.uniform(0.0002, 0.025))
                await Round(log, chance, memory).storm()

        with striking() as strike:
            struck += interrupted(functools.partial(main, strike))
        _assert_agree(path, memory)
    assert struck > 10
    assert not [one for one in threading.enumerate() if one.name == "fencepost-writer"]


def test_interrupt_of_the_main_task_waits_for_the_outcome(path: Path) -> None:
    """A Ctrl-C while the main task waits for a commit that was taken comes out only after its hop."""
    memory: list[int] = []
    taken = threading.Event()
    go = threading.Event()

    def hold(tx: Any, row: Any) -> Any:
        taken.set()
        go.wait(10)
        return Plan(events=[renamed("ses_a", "held")], value=None)

    @trio.lowlevel.enable_ki_protection
    async def interrupt() -> None:
        while not taken.is_set():
            await trio.lowlevel.checkpoint()
        signal.raise_signal(signal.SIGINT)
        await trio.testing.wait_all_tasks_blocked()
        assert memory == []
        go.set()

    async def main() -> None:
        async with open_log(path) as log:
            await publish(log, created("ses_a"))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(interrupt)
                await log.publish(
                    "ses_a", hold, after_commit=lambda published: memory.append(published.stored[0].seq)
                )
                await trio.lowlevel.checkpoint()

    assert interrupted(main)
    assert memory == [1]
