"""The pytest plugin: inert unless asked, and clear when a scenario breaks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLAGSHIP = (ROOT / "scenarios" / "interrupted_step_started.toml").read_text(encoding="utf-8")
FAIL_SAFE_S = 120


def run_pytest(folder: Path, scenario: str, *, asked: bool) -> str:
    """What pytest prints in a project with one scenario file; in a process of its own."""
    (folder / "worlds").mkdir()
    (folder / "worlds" / "one.toml").write_text(scenario, encoding="utf-8")
    option = "fencepost_scenarios = worlds\n" if asked else ""
    (folder / "pytest.ini").write_text(f"[pytest]\n{option}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "sim.pytest_plugin"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=FAIL_SAFE_S,
        check=False,
    )
    return done.stdout


def test_nothing_is_collected_unless_the_project_asks(tmp_path: Path) -> None:
    """Without its option the plugin leaves TOML files alone."""
    assert "no tests ran" in run_pytest(tmp_path, FLAGSHIP, asked=False)


def test_a_scenario_is_a_test(tmp_path: Path) -> None:
    """A file in the named folder is one passing test."""
    assert "1 passed" in run_pytest(tmp_path, FLAGSHIP, asked=True)


def test_a_broken_scenario_says_what_broke_and_how_to_replay_it(tmp_path: Path) -> None:
    """The failure names the expectation and the command that shows it again."""
    printed = run_pytest(tmp_path, FLAGSHIP.replace('is = "settled"', 'is = "requested"'), asked=True)
    assert "1 failed" in printed
    assert "stop was answered settled, expected requested" in printed
    assert "replay it with: python -m sim run" in printed
    assert "one.toml" in printed
