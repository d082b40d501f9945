"""`matrix` prints the grid and each broken cell's sentence, and its JSON adds up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim.__main__ import main
from sim.ablations import named
from sim.cli import matrix as cli_matrix
from sim.matrix import run_matrix
from sim.scenario import load_scenario

ROOT = Path(__file__).parents[2]

WORLD = """
proves = "A cut answer ends the turn."
name = "cut_off"
[[nodes]]
name = "a"
[[sessions]]
name = "s"
replies = [[{ text = "Half an" }, { cut = "reset" }], [{ text = "Done" }, { finish = "stop" }]]
[[actions]]
do = "send"
node = "a"
session = "s"
text = "Hello"
at_s = 0.0
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """The matrix of a broken engine, as text and as JSON."""
    path = tmp_path_factory.mktemp("matrix") / "cut_off.toml"
    path.write_text(WORLD)
    with named("retry_before_visible_output").off():
        found = run_matrix(load_scenario(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli_matrix, "run_matrix", lambda *args, **kwargs: found)
        return [CliRunner().invoke(main, ["matrix", str(path), *more]) for more in ([], ["--json"])]


def test_each_broken_cell_is_told(results: list[Result]) -> None:
    """Status 1; a line for each X says at which gate, in which way, and the sentence."""
    done = results[0]
    assert done.exit_code == 1
    grid, _, rest = done.stdout.partition("X gate ")
    told = [line for line in f"X gate {rest}".splitlines() if line.startswith("X gate ")]
    assert len(told) >= grid.count(" X ") > 0
    assert all("which had shown text.started" in line or "(I" in line for line in told)
    assert " broken" in done.stdout.splitlines()[-1]


def test_the_json_adds_up(results: list[Result]) -> None:
    """Cells are gates times modes; each failure is listed with its violations; nothing was left out."""
    done = results[1]
    facts = json.loads(done.stdout)
    assert done.exit_code == 1
    assert facts["cells"] == facts["gates"] * len(facts["modes"])
    assert facts["failures"] == len(facts["broken"]) > 0
    assert all(cell["violations"][0]["sentence"] for cell in facts["broken"])
    assert facts["complete"] is True


def test_a_file_without_an_engine_is_refused() -> None:
    """Where the file expects that no engine opens, there is nothing to interrupt: status 2."""
    done = CliRunner().invoke(main, ["matrix", str(ROOT / "scenarios" / "lease_too_short.toml")])
    assert (done.exit_code, "nothing to interrupt" in done.stderr) == (2, True)
