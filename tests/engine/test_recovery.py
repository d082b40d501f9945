"""The sweep: what it finds, whom it rings, and that one broken session never stops it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import attrs
import pytest
import trio

from engine.api import Engine
from engine.claims import Watched
from engine.errors import StoreIOError
from engine.limits import EngineConfig
from engine.providers.script import Finish, Stall, Text, reply, says
from engine.providers.scripted import ScriptedProvider
from engine.recovery import Recovery
from engine.testing import World, crash, open_test_engine, run_test, verify
from engine.verify import Findings
from tests.engine.damage import damage
from tests.engine.real import CONFIG, Model, engine_on, findings_of, types_in, until

BUSY_MS = 10_000
"""The store's own writer may hold the lock for a moment."""


CONFIG_SLOW_SWEEP = EngineConfig(sweep_interval_ms=24 * 3_600_000)
STALLING = reply(Text(text="Wait"), Stall(stall_ms=3_600_000), Finish())


def rung_by(engine: Engine) -> list[tuple[str, Watched | None]]:
    """Everything that a sweep rings from now on, instead of a start."""
    rung: list[tuple[str, Watched | None]] = []

    def wake(session_id: str, watched: Watched | None = None) -> None:
        rung.append((session_id, watched))

    engine.coordinator.wake = wake  # type: ignore[method-assign,assignment]
    return rung


async def leave_behind(world: World, names: Sequence[str], *, crashed: bool) -> None:
    """Sessions that a node had begun when it crashed, or was closed."""
    config = attrs.evolve(CONFIG_SLOW_SWEEP, shutdown_grace_ms=0)
    provider = ScriptedProvider(world.clock, [STALLING])
    async with open_test_engine(world=world, provider=provider, config=config, check=False) as engine:
        for name in names:
            await engine.create_session(session_id=name)
            await engine.send(name, "hello", input_id=f"inp_{name}")
        await trio.sleep(1)
        if crashed:
            crash(engine)


# --- what it finds -----------------------------------------------------------------------------------


def test_a_sweep_rings_for_all_that_nobody_is_at() -> None:
    """It rings for claims that were handed over at once and for expired ones once they are, for input that
    waits without a claim, and for nothing else."""

    async def main() -> None:
        world = World()
        await leave_behind(world, ["ses_dead"], crashed=True)
        await leave_behind(world, ["ses_over"], crashed=False)
        async with open_test_engine(world=world, config=CONFIG_SLOW_SWEEP, check=False) as engine:
            await engine.wait_turn("ses_over", "inp_ses_over")
            await engine.wait_idle()
            rung = rung_by(engine)
            for name in ("ses_waits", "ses_parked", "ses_idle", "ses_gone"):
                await engine.create_session(session_id=name)
            for name in ("ses_waits", "ses_parked", "ses_gone"):
                await engine.send(name, "hello")
            await engine.interrupt("ses_parked")
            await engine.delete("ses_gone")
            rung.clear()
            await engine.recovery.sweep()
            assert rung == [("ses_waits", None)], "what was handed over was taken up when the engine opened"
            await trio.sleep(CONFIG_SLOW_SWEEP.lease_ms / 1000)
            rung.clear()
            await engine.recovery.sweep()
            assert rung == [("ses_dead", None), ("ses_waits", None)]

    run_test(main)


def test_a_sweep_leaves_alone_what_is_busy_here() -> None:
    """A session that this node is at isn't rung by its own sweep, were its claim expired; one that another
    node's dead execution holds is, though this very node had it."""

    async def main() -> None:
        world = World()
        provider = ScriptedProvider(world.clock, [STALLING])
        async with open_test_engine(
            world=world, provider=provider, config=CONFIG_SLOW_SWEEP, check=False
        ) as engine:
            session = await engine.create_session()
            await session.send("hello")
            await trio.sleep(1)
            world.clock.set_wall_ms(world.clock.now_ms() + 60_000)
            slot = engine.coordinator.slot(session.id)
            assert slot is not None
            assert not slot.woken
            await engine.recovery.sweep()
            assert not slot.woken

    run_test(main)


def test_a_future_dated_claim_is_watched_before_it_is_taken() -> None:
    """A claim dated far ahead is rung for once its version stood still for a lease and the maximum skew on
    the node's own clock; a version that moved begins the watch anew."""

    async def main() -> None:
        world = World()
        before = world.clock.now_ms()
        world.clock.set_wall_ms(before + 86_400_000)
        await leave_behind(world, ["ses_far"], crashed=True)
        world.clock.set_wall_ms(before)
        config = attrs.evolve(CONFIG_SLOW_SWEEP)
        enough_s = (config.lease_ms + config.clock_skew_ms_max) / 1000
        async with open_test_engine(world=world, config=config, check=False) as engine:
            rung = rung_by(engine)
            await engine.recovery.sweep()
            await trio.sleep(enough_s - 0.1)
            await engine.recovery.sweep()
            assert rung == []
            world.database.connection.execute("UPDATE execution_claim SET version = version + 1")
            await trio.sleep(0.2)
            await engine.recovery.sweep()
            assert rung == [], "it moved: somebody lives"
            await trio.sleep(enough_s + 0.1)
            await engine.recovery.sweep()
            (claim,) = world.database.read(lambda tx: tx.claims("", 9))
            seen = Watched(execution_id=claim.execution_id, version=claim.version)
            assert rung == [("ses_far", seen)]

    run_test(main)


def test_a_watched_claim_is_taken_over_only_as_it_was_seen() -> None:
    """If the owner of a future-dated claim lives after all and renews before the take-over commits, it keeps
    its claim."""

    async def main() -> None:
        world = World()
        await leave_behind(world, ["ses_far"], crashed=True)
        async with open_test_engine(world=world, config=CONFIG_SLOW_SWEEP, check=False) as engine:
            (claim,) = world.database.read(lambda tx: tx.claims("", 9))
            late = Watched(execution_id=claim.execution_id, version=claim.version - 1)
            engine.coordinator.wake("ses_far", late)
            await engine.wait_idle()
            assert world.database.read(lambda tx: tx.claims("", 9)) == [claim]
            engine.coordinator.wake(
                "ses_far", Watched(execution_id=claim.execution_id, version=claim.version)
            )
            await engine.wait_turn("ses_far", "inp_ses_far")
            assert (await types_in(engine, "ses_far")).count("execution.started") == 2

    run_test(main)


# --- when it looks -----------------------------------------------------------------------------------


def test_sweeps_are_spread_around_their_interval() -> None:
    """A node sweeps when it opens and then at each interval, a tenth earlier or later by chance, so that
    nodes don't march in step."""

    @attrs.frozen
    class Chances:
        drawn: list[float]

        def fraction(self) -> float:
            return self.drawn.pop(0)

    async def main() -> None:
        world, at = World(chance=Chances([0.0, 0.5, 0.999, 0.5])), list[float]()
        config = EngineConfig(sweep_interval_ms=10_000)
        async with open_test_engine(world=world, config=config) as engine:

            async def note() -> None:
                at.append(round(world.clock.monotonic(), 1))

            engine.recovery.sweep = note  # type: ignore[method-assign]
            await trio.sleep(35)
        assert at == [0.0, 9.0, 19.0, 30.0]

    run_test(main)


@pytest.mark.parametrize("error", [StoreIOError("a bad disk"), RuntimeError("a bug")], ids=["store", "bug"])
def test_a_sweep_that_fails_is_followed_by_the_next(error: Exception) -> None:
    """Whatever one sweep meets, the engine goes on, and the next sweep finds what that one didn't."""

    async def main() -> None:
        world, failed = World(), list[int]()
        await leave_behind(world, ["ses_a"], crashed=True)
        async with open_test_engine(world=world, check=False) as engine:
            whole = engine.recovery.sweep

            async def sweep() -> None:
                if len(failed) < 5:
                    failed.append(1)
                    raise error
                await whole()

            engine.recovery.sweep = sweep  # type: ignore[method-assign]
            assert (await engine.wait_turn("ses_a", "inp_ses_a")).how == "succeeded"
            assert len(failed) == 5

    run_test(main)


def test_a_sweep_takes_a_page_and_the_next_one_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sessions are due, each sweep takes a bounded number of them, and all get their turn."""
    monkeypatch.setattr("engine.recovery.FOUND_MAX", 3)

    async def main() -> None:
        world, names = World(), [f"ses_{number}" for number in range(10)]
        await leave_behind(world, names, crashed=True)
        async with open_test_engine(world=world, check=False) as engine:
            for name in names:
                assert (await engine.wait_turn(name, f"inp_{name}")).how == "succeeded"

    run_test(main)


# --- one among many ----------------------------------------------------------------------------------


def poison(path: Path, session_id: str) -> None:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(BUSY_MS)
    damage(connection, session_id)
    connection.close()


@pytest.mark.trio
async def test_one_poisoned_session_beside_ninety_nine_healthy_ones(tmp_path: Path) -> None:
    """Of a hundred sessions that were handed over one can't be read any more: it is quarantined, the others
    go on to their ends, and the node stays well."""
    path, names = tmp_path / "hundred.db", [f"ses_{number:02}" for number in range(100)]
    model = Model(held=True)
    config = attrs.evolve(CONFIG, shutdown_grace_ms=0)
    async with engine_on(path, model, config=config) as engine:
        for name in names:
            await engine.create_session(session_id=name)
            await engine.send(name, "hello", input_id=f"inp_{name}")
        await model.wait_asked(100)
    poison(path, "ses_50")
    healthy = [name for name in names if name != "ses_50"]
    async with engine_on(path, Model(says("Done.")), config=config) as engine:
        for name in healthy:
            assert (await engine.wait_turn(name, f"inp_{name}")).how == "succeeded"
        await until(lambda: not engine.coordinator.active())
        (row,) = await engine.quarantined()
        assert row.session_id == "ses_50"
        assert row.recovery_error is not None
        assert "nonsense" in row.recovery_error
        assert engine.health().ok
        started = engine.metrics().events["execution.started"]
        await engine.recovery.sweep()
        await until(lambda: not engine.coordinator.active())
        assert engine.metrics().events["execution.started"] == started == 100
        await engine.discard("ses_50")
    found = await findings_of(path)
    assert [name for name, each in found.items() if _stirs(each)] == []


def _stirs(found: Findings) -> bool:
    return bool(found.breaches or found.pending)


def test_a_session_that_is_poisoned_again_and_again_costs_the_others_nothing() -> None:
    """Every session of a node is broken but one, and that one is answered all the same."""

    async def main() -> None:
        world, names = World(), [f"ses_{number}" for number in range(20)]
        await leave_behind(world, names, crashed=True)
        for name in names[1:]:
            damage(world.database.connection, name, "a broken start of a step")
        config = EngineConfig(sessions_running_max=2)
        async with open_test_engine(world=world, config=config, check=False) as engine:
            assert (await engine.wait_turn("ses_0", "inp_ses_0")).how == "succeeded"
            while len(await engine.quarantined()) < 19:
                await trio.sleep(1)
            assert verify(world)["ses_0"].ok

    run_test(main)


def test_recovery_holds_no_more_than_what_lives() -> None:
    """What a sweep remembers of watched claims is what it saw last: those that are gone are forgotten."""

    async def main() -> None:
        world = World()
        await leave_behind(world, ["ses_a", "ses_b"], crashed=True)
        async with open_test_engine(world=world, config=CONFIG_SLOW_SWEEP, check=False) as engine:
            rung = rung_by(engine)
            recovery: Any = Recovery(engine.node, engine.coordinator)
            await recovery.sweep()
            assert list(recovery._seen) == ["ses_a", "ses_b"]
            world.database.connection.execute("DELETE FROM execution_claim WHERE session_id = 'ses_a'")
            await recovery.sweep()
            assert list(recovery._seen) == ["ses_b"]
            assert rung == []

    run_test(main)
