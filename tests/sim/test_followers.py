"""Followers: whoever is cut off by an engine that goes on has missed something."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.api import Engine
from sim.run import judge
from sim.scenario import load_scenario
from sim.tape import Tape

FOLLOWED = Path(__file__).parents[2] / "scenarios" / "followers_everywhere.toml"


def test_a_reading_that_ends_early_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the engine ended each reading after three events, its followers would say so."""
    whole = Engine.log

    @contextlib.asynccontextmanager
    async def short(self: Engine, *args: Any, **more: Any) -> AsyncIterator[AsyncIterator[Any]]:
        async with whole(self, *args, **more) as reader:

            async def few() -> AsyncIterator[Any]:
                for _ in range(3):
                    yield await anext(reader)

            async with contextlib.aclosing(few()) as events:
                yield events

    scenario = load_scenario(FOLLOWED)
    assert judge(scenario, Tape.fifo()).violations == []
    monkeypatch.setattr(Engine, "log", short)
    sentences = [one.sentence for one in judge(scenario, Tape.fifo()).violations if one.rule == "I14"]
    assert sentences
    assert all(" was cut off after " in sentence for sentence in sentences), sentences
