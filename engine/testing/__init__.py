"""For those who test their own tools and providers: an engine without files, threads or real waiting.

    async def greets() -> None:
        async with open_test_engine(provider=…, tools=[…]) as engine:
            session = await engine.create_session()
            assert (await session.run("Good morning")).how == "succeeded"

    def test_greets() -> None:
        run_test(greets)

`engine.testing.fixtures` has the same as pytest fixtures, for those who ask for it.
"""

from __future__ import annotations

from engine.store.memory import MemoryDatabase, MemoryStore
from engine.testing.checking import assert_sound, verify
from engine.testing.running import crash, open_test_engine, run_test
from engine.testing.samples import sample_context, sample_request
from engine.testing.world import CountedIds, EvenChance, VirtualClock, World

__all__ = [
    "CountedIds",
    "EvenChance",
    "MemoryDatabase",
    "MemoryStore",
    "VirtualClock",
    "World",
    "assert_sound",
    "crash",
    "open_test_engine",
    "run_test",
    "sample_context",
    "sample_request",
    "verify",
]
