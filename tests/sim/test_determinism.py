"""One tape gives one run of the real engine, whatever the process, the size of the world and who looks on."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.providers.script import parse_reply
from sim.determinism import other_process
from sim.project import Project
from sim.report.page import page
from sim.report.story import tell
from sim.run import judge
from sim.saved import dump
from sim.scenario import Action, Fault, Node, Scenario, Session, Tool, load_scenario
from sim.tape import Tape

ROOT = Path(__file__).parents[2]


def world(sessions: int, calls: int = 6) -> Scenario:
    """Sessions over three nodes, each with some tools at work when one node loses its power."""
    called = [{"call": f"c{nth}", "tool": "slow", "input": {}} for nth in range(calls)]
    replies = (
        parse_reply([*called, {"finish": "tool_calls"}], "test"),
        parse_reply([{"text": "Done"}, {"finish": "stop"}], "test"),
    )
    names = [f"s{number}" for number in range(sessions)]
    nodes = ("a", "b", "c")
    return Scenario(
        proves="One tape gives one run.",
        name=f"of_{sessions}",
        config={"sessions_running_max": 8},
        nodes=tuple(Node(name=name) for name in nodes),
        sessions=tuple(Session(name=name, replies=replies) for name in names),
        tools=(Tool(name="slow", output="42", takes_ms=3_000),),
        actions=tuple(
            Action(do="send", node=nodes[number % 3], session=name, text="Go", at_s=0.0)
            for number, name in enumerate(names)
        ),
        faults=(Fault(kind="power_cut", node="a", at_s=2.0),),
    )


def saved(scenario: Scenario, folder: Path) -> Scenario:
    path = folder / f"{scenario.name}.toml"
    path.write_text(dump(scenario))
    return load_scenario(path)


@pytest.mark.parametrize("sessions", [2, 20, 200])
def test_one_tape_gives_one_run(sessions: int, tmp_path: Path) -> None:
    """However many sessions a world has, a second run is equal, here and under another hash seed."""
    scenario = saved(world(sessions, calls=1), tmp_path)
    first = judge(scenario, Tape.seeded(5))
    assert first.violations == []
    assert judge(scenario, Tape.seeded(5)).digest == first.digest
    with other_process() as other:
        assert other.differs(scenario, first.entries, 5) == []


def test_every_hash_seed_gives_that_run(tmp_path: Path) -> None:
    """Fresh processes under the hash seeds 0, 1, 5 and random print the digest of this process."""
    scenario = saved(world(2), tmp_path)
    expected = judge(scenario, Tape.seeded(5)).digest
    command = [sys.executable, "-m", "sim", "run", "--json", "--seed", "5", scenario.file]
    for hash_seed in ("0", "1", "5", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True, text=True)
        assert [result["digest"] for result in json.loads(done.stdout)] == [expected]


def test_who_looks_on_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """With every log record written, and with a report made of the run, the digest is the same."""
    scenario = world(3)
    silent = judge(scenario, Tape.seeded(5)).digest
    with caplog.at_level(logging.DEBUG):
        assert judge(scenario, Tape.seeded(5)).digest == silent
    assert any(record.name.startswith("fencepost") for record in caplog.records)
    story, told = tell(scenario, Tape.seeded(5))
    assert "<html" in page(story)
    assert told.digest == silent


def test_a_set_in_the_engine_is_found(tmp_path: Path) -> None:
    """Where a copy of the engine settles calls in hash order, the first entry that differs is named."""
    for package in ("engine", "sim"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    settlement = tmp_path / "engine" / "settlement.py"
    sound = settlement.read_text()
    settlement.write_text(sound.replace("call_id in facts.open_calls", "call_id in set(facts.open_calls)"))
    assert settlement.read_text() != sound
    scenario = saved(world(2), tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "sim", "run", "--check-determinism", scenario.file]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "under another PYTHONHASHSEED differs: the runs part at entry" in done.stdout
    assert "tool.failed" in done.stdout


def test_an_ended_process_is_no_answer(tmp_path: Path) -> None:
    """If the other process ends before it answers, that is an error and not an equal run."""
    scenario = saved(world(2), tmp_path)
    Path(scenario.file).write_text("nonsense")
    with other_process() as other, pytest.raises(RuntimeError, match="has ended"):
        other.differs(scenario, [])


def talkative() -> Project:
    """A project that prints."""
    print("made")  # noqa: T201
    return Project()


def test_what_a_project_prints_is_no_answer(tmp_path: Path) -> None:
    """The other process keeps its answers apart from what is printed there."""
    scenario = saved(world(1, calls=1), tmp_path)
    first = judge(scenario, Tape.seeded(5))
    with other_process(f"{__name__}:talkative") as other:
        assert other.differs(scenario, first.entries, 5) == []
