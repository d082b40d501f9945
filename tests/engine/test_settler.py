"""Settlement when several things go wrong at once."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from engine import transactions
from engine.endings import Ending, Lost
from engine.events import Stored
from engine.providers.script import Finish, Stall, reply
from engine.providers.scripted import ScriptedProvider
from engine.testing import World, open_test_engine, run_test


def test_a_defect_that_meets_a_lost_claim_ends_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A settlement that can't be read, under a claim that is gone: whoever joined hears `Lost`, no error."""

    async def main() -> None:
        world = World()
        provider = ScriptedProvider(world.clock, [reply(Stall(stall_ms=60_000), Finish(finish="stop"))])
        async with open_test_engine(provider=provider, world=world, check=False) as engine:
            session = await engine.create_session()
            await session.send("x")
            async with session.log(follow=True) as log:
                async for item in log:
                    if isinstance(item, Stored) and item.type == "step.started":
                        break

            def broken(*args: Any) -> Any:
                slot = engine.coordinator.slot(session.id)
                assert slot is not None
                assert slot.execution is not None
                slot.execution.handle.lose("taken over meanwhile")
                raise ValueError("this can't be read")

            monkeypatch.setattr(transactions, "settle_interrupted", broken)
            endings: list[Ending | None] = []

            async def join() -> None:
                endings.append(await engine.execute(session.id))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(join)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(session.interrupt)
                with trio.move_on_after(1):
                    await engine.wait_idle(session.id)
                await trio.testing.wait_all_tasks_blocked()  # whoever joined was woken at the same moment
                nursery.cancel_scope.cancel()
            assert [type(ending) for ending in endings] == [Lost]
            monkeypatch.undo()

    run_test(main)
