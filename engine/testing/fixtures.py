"""Pytest fixtures around `engine.testing`; opt in by `pytest_plugins = ["engine.testing.fixtures"]`.

Override `fencepost_provider`, `fencepost_tools` or `fencepost_config` where your tests are. A plain test
takes `fencepost_run`, and hands it an async function of one engine. Where pytest-trio is installed, an async
test takes `fencepost_engine` and `autojump_clock`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

from engine.api import Engine
from engine.limits import EngineConfig
from engine.ports import Provider, Tool
from engine.testing.running import open_test_engine, run_test
from engine.testing.world import World

T = TypeVar("T")
Run = Callable[[Callable[[Engine], Awaitable[T]]], T]


@pytest.fixture
def fencepost_provider() -> Provider | None:
    """The provider of the test's engine; None is the scripted one with its fixed line."""
    return None


@pytest.fixture
def fencepost_tools() -> Sequence[Tool]:
    """The tools of the test's engine."""
    return ()


@pytest.fixture
def fencepost_config() -> EngineConfig | None:
    """The bounds of the test's engine; None are the defaults."""
    return None


@pytest.fixture
def fencepost_world() -> World:
    """The clock, ids and database of the test."""
    return World()


@pytest.fixture
def fencepost_run(
    fencepost_world: World,
    fencepost_provider: Provider | None,
    fencepost_tools: Sequence[Tool],
    fencepost_config: EngineConfig | None,
) -> Run[T]:
    """Runs `await test(engine)` in virtual time, and then checks the database."""

    def run(test: Callable[[Engine], Awaitable[T]]) -> T:
        async def main() -> T:
            async with open_test_engine(
                world=fencepost_world,
                provider=fencepost_provider,
                tools=fencepost_tools,
                config=fencepost_config,
            ) as engine:
                return await test(engine)

        return run_test(main)

    return run


async def fencepost_engine(
    fencepost_world: World,
    fencepost_provider: Provider | None,
    fencepost_tools: Sequence[Tool],
    fencepost_config: EngineConfig | None,
) -> AsyncIterator[Engine]:
    """An engine around an async test of pytest-trio, which takes `autojump_clock`, too."""
    async with open_test_engine(
        world=fencepost_world,
        provider=fencepost_provider,
        tools=fencepost_tools,
        config=fencepost_config,
    ) as engine:
        yield engine


if importlib.util.find_spec("pytest_trio") is not None:
    fencepost_engine = importlib.import_module("pytest_trio").trio_fixture(fencepost_engine)
