"""Ctrl-C over whole engines: it reaches the host as such, tears nothing, and blames no session."""

from __future__ import annotations

import contextlib
import functools
import random
import signal
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from engine import keeping
from engine.api import Engine
from engine.ports import Tool, ToolContext
from engine.providers.script import parse_reply, says
from engine.records import Request
from tests.engine.real import (
    CONFIG,
    Model,
    assert_clean,
    engine_on,
    types_in,
    wait_for,
)
from tests.engine.strikes import Strike, interrupted, striking, struck_anywhere

SESSIONS = ["ses_a", "ses_b", "ses_c"]


CALL = parse_reply([{"call": "c1", "tool": "work", "input": {}}, {"finish": "tool_calls"}], "call")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a new database may go."""
    return tmp_path / "storm.db"


async def _work(context: ToolContext, value: dict[str, Any]) -> str:
    total = 0
    for number in range(2_000):  # long enough to be struck
        total += number
    await trio.lowlevel.checkpoint()
    return str(total)


TOOLS = [Tool(name="work", description="", schema={"type": "object"}, handler=_work)]


def _model() -> Model:
    return Model(CALL, says("done"), CALL, says("done again"))


async def _talk(engine: Engine, session_id: str) -> None:
    for number in range(20):
        await engine.run(session_id, str(number))


@struck_anywhere
def test_interrupted_engines(path: Path) -> None:
    """A Ctrl-C at whatever instruction ends the host's block with a Ctrl-C, never with a fault of the engine;
    no session is quarantined, and the next engine finishes every turn."""
    config = attrs.evolve(CONFIG, shutdown_grace_ms=0)
    struck = 0

    async def prepare() -> None:
        async with engine_on(path, _model(), tools=TOOLS) as engine:
            for session_id in SESSIONS:
                await engine.create_session(session_id=session_id)

    trio.run(prepare)
    for seed in range(40):
        chance = random.Random(seed)

        async def main(strike: Strike, chance: random.Random = chance) -> None:
            async with engine_on(path, _model(), tools=TOOLS, config=config) as engine:
                strike(chance.uniform(0.002, 0.05))
                async with trio.open_nursery() as nursery:
                    for session_id in SESSIONS:
                        nursery.start_soon(_talk, engine, session_id)

        with striking() as strike:
            struck += interrupted(functools.partial(main, strike))
        trio.run(_assert_nothing_broken, path)
    assert struck > 20
    trio.run(_finish, path)


async def _assert_nothing_broken(path: Path) -> None:
    await assert_clean(path, at_rest=False)


async def _finish(path: Path) -> None:
    async with engine_on(path, _model(), tools=TOOLS) as engine:
        assert await engine.quarantined() == []
        for session_id in SESSIONS:
            await engine.run(session_id, "the last one")
        await engine.wait_idle()
        for session_id in SESSIONS:
            types = await types_in(engine, session_id)
            assert types.count("input.admitted") == types.count("input.promoted")
    await assert_clean(path)


async def goes_on_soundly(path: Path, tools: list[Tool]) -> None:
    """Another engine on the file ends the turn, and nothing failed in it."""
    async with engine_on(path, Model(says("done")), tools=tools) as engine:
        await wait_for(engine, "ses_a", "execution.succeeded")
        await engine.wait_idle()
        types = await types_in(engine, "ses_a")
        assert "tool.failed" not in types
        assert "step.failed" not in types
    await assert_clean(path)


@pytest.mark.parametrize("where", ["provider", "tool", "listener", "keeper", "sweep"])
def test_interrupt_inside_the_engines_tasks(path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C while an engine's task runs, in the host's own provider, tool or listener too, reaches the
    main task: it is no failure of theirs, no defect of the session, and no fault of the machinery."""

    def hit(here: str) -> None:
        if here == where and not hits:
            hits.append(here)
            signal.raise_signal(signal.SIGINT)

    hits: list[str] = []

    class Hitting(Model):
        """A model in whose code the signal arrives."""

        def open(self, request: Request) -> Any:
            hit("provider")
            return super().open(request)

    async def work(context: ToolContext, value: dict[str, Any]) -> str:
        hit("tool")
        return "worked"

    async def listen(stored: Any) -> None:
        if stored.type == "step.started":
            hit("listener")

    async def look(*args: Any) -> None:
        hit("keeper")

    async def sweep() -> None:
        hit("sweep")

    tools = [attrs.evolve(TOOLS[0], handler=work)]
    config = attrs.evolve(CONFIG, sweep_interval_ms=1, shutdown_grace_ms=0)

    async def main() -> None:
        model = Hitting(CALL, says("done"), held=where == "keeper")
        async with engine_on(path, model, tools=tools, listeners=[listen], config=config) as engine:
            await engine.create_session(session_id="ses_a")
            monkeypatch.setattr(keeping, "_look", look)
            monkeypatch.setattr(engine.recovery, "sweep", sweep)
            await engine.send("ses_a", "x")
            if where == "keeper":
                await model.wait_asked()
                engine.node.log.changed_elsewhere()
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert hits == [where]
    monkeypatch.undo()

    trio.run(goes_on_soundly, path, tools)


def test_second_interrupt_while_closing(path: Path) -> None:
    """A Ctrl-C while the engine closes after another one cuts the grace short, and still nothing is torn."""
    model_asked: list[Model] = []

    async def main() -> None:
        model = Model(held=True)
        model_asked.append(model)
        config = attrs.evolve(CONFIG, shutdown_grace_ms=3_600_000)
        async with trio.open_nursery() as nursery:
            async with engine_on(path, model, config=config) as engine:
                await engine.create_session(session_id="ses_a")
                await engine.send("ses_a", "x")
                await model.wait_asked()
                nursery.start_soon(_interrupt_once_closing, engine)
                raise KeyboardInterrupt

    assert interrupted(main)

    async def after() -> None:
        async with engine_on(path, Model(says("done"))) as engine:
            await wait_for(engine, "ses_a", "execution.succeeded")
            await engine.wait_idle()
        await assert_clean(path)

    trio.run(after)


@trio.lowlevel.enable_ki_protection
async def _interrupt_once_closing(engine: Engine) -> None:
    with contextlib.suppress(trio.Cancelled), trio.CancelScope(shield=True):
        while not engine.health().closing:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
    signal.raise_signal(signal.SIGINT)
