"""Rows that this version can't read: their session is set aside, and every other one goes on."""

from __future__ import annotations

from collections.abc import Callable

import apsw
import pytest
import trio

from engine.api import Engine
from engine.events import Stored
from engine.limits import EngineConfig
from engine.providers.script import Finish, Stall, reply, says
from engine.providers.scripted import ScriptedProvider
from engine.testing import World, crash, open_test_engine, run_test

CONFIG = EngineConfig(sweep_interval_ms=1_000)


def unknown_phase(connection: apsw.Connection) -> None:
    connection.execute("UPDATE execution_claim SET phase = 'dancing' WHERE session_id = 'ses_bad'")


def broken_payload(connection: apsw.Connection) -> None:
    connection.execute("UPDATE input SET payload = x'7B', state = 'pending' WHERE session_id = 'ses_bad'")
    connection.execute("DELETE FROM execution_claim WHERE session_id = 'ses_bad'")


@pytest.mark.parametrize("harm", [unknown_phase, broken_payload])
def test_one_unreadable_session_does_not_stop_the_others(harm: Callable[[apsw.Connection], None]) -> None:
    """It ends in quarantine with the reason; the sweep, its node and the other sessions go on."""

    async def main() -> None:
        world = World()
        slow = ScriptedProvider(world.clock, [reply(Stall(stall_ms=600_000), Finish(finish="stop"))])
        async with open_test_engine(provider=slow, config=CONFIG, world=world, check=False) as engine:
            await _two_sessions_at_work(engine)
            crash(engine)
        harm(world.database.connection)
        provider = ScriptedProvider(world.clock, [says("Done")])
        async with open_test_engine(provider=provider, config=CONFIG, world=world, check=False) as engine:
            await engine.send("ses_good", "Go")
            assert (await engine.wait_turn("ses_good", "inp_good")).how == "succeeded"
            await engine.execute("ses_bad")
            await trio.sleep(60)  # a lease, and a sweep or two
            (row,) = await engine.quarantined()
            assert row.session_id == "ses_bad"
            assert row.recovery_error is not None

    run_test(main)


async def _two_sessions_at_work(engine: Engine) -> None:
    for name in ("bad", "good"):
        session = await engine.create_session(session_id=f"ses_{name}")
        await session.send("Hello", input_id=f"inp_{name}")
        async with session.log(follow=True) as log:
            async for item in log:
                if isinstance(item, Stored) and item.type == "step.started":
                    break
