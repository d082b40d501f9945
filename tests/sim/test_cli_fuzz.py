"""`fuzz` runs worlds of its own or a file's, saves what fails, and an empty campaign doesn't look clean."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner, Result

from sim import fuzz
from sim.__main__ import main
from sim.ablations import named
from sim.fuzz import MARKS_DEMANDED_FROM, Campaign, run_seed
from sim.generate.worlds import disturb
from sim.saved import dump, rule_found
from sim.scenario import Scenario, check_scenario, load_scenario, parse_scenario
from sim.schedulers import scheduler_of, tape_for

ROOT = Path(__file__).parents[2]
BROKEN_BY = "retry_before_visible_output"

BASE = """
proves = "A cut answer ends the turn."
name = "cut_off"
[[nodes]]
name = "a"
[[nodes]]
name = "b"
[[sessions]]
name = "s"
replies = [[{ text = "Half an" }, { cut = "reset" }], [{ text = "Done" }, { finish = "stop" }]]
[[actions]]
do = "send"
node = "a"
session = "s"
text = "Hello"
at_s = 0.0
[[expect]]
requests = "s"
count = 77
"""


def base() -> Scenario:
    found, problems = parse_scenario(BASE, "cut_off.toml")
    assert found is not None, problems
    return found


def command(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["fuzz", *map(str, arguments)])


def test_a_seed_disturbs_the_world_of_a_file() -> None:
    """Nodes, sessions and clients are the file's; faults come on top, and differ from seed to seed."""
    one = base()
    worlds = [disturb(tape_for(seed, scheduler_of(seed)), one, "w") for seed in range(40)]
    parts = ("nodes", "sessions", "tools", "actions", "config")
    for world in worlds:
        assert [getattr(world, part) for part in parts] == [getattr(one, part) for part in parts]
        assert {fault.node for fault in world.faults} <= {"", "*", "a", "b"}
    assert len({world.faults for world in worlds}) > 5
    assert [world for world in worlds if world.faults == () and world.listeners == ()] != []
    assert [world for world in worlds if world.followers] != []


def test_what_the_file_expects_isnt_asked() -> None:
    """The clean run of the file would break; the campaign judges the invariants alone."""
    found = run_seed(0, base=base())
    assert (found.seeds, found.failures) == (1, [])
    assert found.gates > 20


def test_the_command_saves_what_replays(tmp_path: Path) -> None:
    """A failure in a file's world is printed as a sentence, shrunk, saved, and breaks again when replayed."""
    path, folder = tmp_path / "cut_off.toml", tmp_path / "found"
    path.write_text(BASE)
    with named(BROKEN_BY).off():
        done = command(path, "--seeds", 2, "--save", folder)
        saved = sorted(folder.glob("*.toml"))
        again = CliRunner().invoke(main, ["replay", str(saved[0])])
    assert done.exit_code == 1
    assert [file.name for file in saved] == ["cut_off_seed_0.toml", "cut_off_seed_1.toml"]
    assert "a retry is scheduled for step 1, which had shown text.started at seq 5\n    I13" in done.stdout
    assert f"see it again with: python -m sim replay {saved[0]}" in done.stdout
    assert done.stdout.splitlines()[-1] == "2 seeds broke an invariant"
    assert (check_scenario(saved[0]), rule_found(load_scenario(saved[0]))) == ([], "I13")
    assert load_scenario(saved[0]).expect == ()
    assert (again.exit_code, again.stdout.splitlines()[0][-15:]) == (1, "I13 broke again")
    assert CliRunner().invoke(main, ["replay", str(saved[0])]).exit_code == 0


def test_ctrl_c_while_failures_are_shrunk_saves_them_as_they_are(tmp_path: Path) -> None:
    """Whoever is tired of waiting gets every failure as a file, less small."""
    folder = tmp_path / "found"
    with named(BROKEN_BY).off():
        found = fuzz.campaign(
            seeds=2,
            first=0,
            seconds=None,
            jobs=1,
            save=folder,
            base=base(),
            told=lambda so_far: so_far.seeds < 2,
        )
    assert len(found.saved) == 2
    for path, failure in zip(found.saved, found.failures, strict=True):
        assert dump(attrs.evolve(load_scenario(path), proves="")) == dump(
            attrs.evolve(failure.scenario, proves="")
        )


def test_two_processes_find_what_one_finds() -> None:
    """The counts are those of the same seeds in one process."""
    facts = [json.loads(command("--seeds", 8, "--jobs", jobs, "--json").stdout) for jobs in (1, 2)]
    for each in facts:
        del each["runs_per_s"]
    assert facts[0] == facts[1]


def test_only_worlds_of_every_kind_must_reach_every_rare_state() -> None:
    """A long campaign that missed one is broken; one of a single world isn't, as it may never reach it."""
    assert Campaign(seeds=MARKS_DEMANDED_FROM).broken
    assert not Campaign(seeds=MARKS_DEMANDED_FROM, marks_demanded=False).broken
    assert not Campaign(seeds=MARKS_DEMANDED_FROM - 1).broken


@pytest.mark.parametrize("arguments", [["none.toml"], ["--seeds", "0"], ["--save", "/dev/null/x"]])
def test_bad_input_is_refused(arguments: list[str]) -> None:
    """Status 2, and nothing is run."""
    done = command(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr != ""


def test_a_file_without_an_engine_is_refused() -> None:
    """Where the file expects that no engine opens, there is nothing to disturb."""
    files = [
        file for file in sorted((ROOT / "scenarios").glob("*.toml")) if load_scenario(file).config_refused
    ]
    done = command(files[0])
    assert done.exit_code == 2
    assert "so there is nothing to disturb" in done.stderr
