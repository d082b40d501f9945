"""`shrink` writes the smaller scenario, says what is still broken, and can be stopped."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim.__main__ import main
from sim.ablations import named
from sim.cli import shrink as cli_shrink
from sim.scenario import Scenario, load_scenario, parse_scenario

WORLD = """
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
[[faults]]
kind = "stall"
node = "b"
at_s = 1.0
for_s = 1.0
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cut_off.toml"
    path.write_text(WORLD)
    return path


def shrink(*arguments: object) -> Result:
    with named("retry_before_visible_output").off():
        return CliRunner().invoke(main, ["shrink", *map(str, arguments)])


def test_the_smaller_scenario_is_written(file: Path, tmp_path: Path) -> None:
    """To a file that can be run, or to standard output alone; status 1, as it is still broken."""
    out = tmp_path / "small.toml"
    done = shrink(file, "-o", out)
    assert (done.exit_code, done.stdout) == (
        1,
        f"wrote {out}; see it again with: python -m sim run {out}\n",
    )
    small = load_scenario(out)
    assert [len(part) for part in (small.nodes, small.actions, small.faults)] == [1, 1, 0]
    assert "I13 still broken" in done.stderr
    printed = shrink(file)
    assert printed.stdout.strip() == out.read_text().strip()


def test_the_json_holds_the_scenario(file: Path) -> None:
    """The rules, how many runs it took, whether it was stopped, and the text of the file."""
    done = shrink(file, "--json")
    facts = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (facts["rules"], facts["complete"], facts["saved"]) == (["I13"], True, None)
    assert facts["runs"] > 2
    small, problems = parse_scenario(facts["scenario"], "small.toml")
    assert (problems, small is not None) == ([], True)


def test_ctrl_c_keeps_the_smallest_so_far(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed is less small than it could be, still breaks, and is said to be incomplete."""
    original, calls = cli_shrink.broken_rules, 0

    def pressed(scenario: Scenario, project: str | None = None) -> set[str]:
        nonlocal calls
        calls += 1
        if calls == 2:
            signal.raise_signal(signal.SIGINT)
        return original(scenario, project)

    monkeypatch.setattr(cli_shrink, "broken_rules", pressed)
    facts = json.loads(shrink(file, "--json").stdout)
    assert (facts["complete"], facts["runs"], calls) == (False, 1, 2)
    small, _ = parse_scenario(facts["scenario"], "small.toml")
    assert small is not None
    assert (len(small.faults), len(small.nodes)) == (0, 2), "one fault is gone, a node is still too many"


def test_what_holds_is_refused(file: Path) -> None:
    """There is nothing to shrink: status 2, and why."""
    done = CliRunner().invoke(main, ["shrink", str(file)])
    assert done.exit_code == 2
    assert done.stderr == f"{file}: every invariant held, so there is nothing to shrink\n"


def test_a_place_that_cant_be_written_is_refused(file: Path, tmp_path: Path) -> None:
    """Status 2 instead of a traceback."""
    done = shrink(file, "-o", tmp_path / "none" / "small.toml")
    assert (done.exit_code, "can't be written" in done.stderr) == (2, True)
