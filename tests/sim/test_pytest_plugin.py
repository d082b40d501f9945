"""The pytest plugin: inert unless asked, and clear when a scenario breaks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

FLAGSHIP = Path(__file__).parents[2] / "scenarios" / "interrupted_step_started.toml"


def project(pytester: pytest.Pytester, *, asked: bool) -> Path:
    folder = pytester.mkdir("worlds")
    option = "fencepost_scenarios = worlds\n" if asked else ""
    pytester.makeini(f"[pytest]\n{option}")
    return folder


def test_nothing_is_collected_unless_the_project_asks(pytester: pytest.Pytester) -> None:
    """Without its option the plugin leaves TOML files alone."""
    shutil.copy(FLAGSHIP, project(pytester, asked=False))
    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes()


def test_a_scenario_is_a_test(pytester: pytest.Pytester) -> None:
    """A file in the named folder is one passing test."""
    shutil.copy(FLAGSHIP, project(pytester, asked=True))
    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_a_broken_scenario_says_what_broke_and_how_to_replay_it(pytester: pytest.Pytester) -> None:
    """The failure names the expectation and the command that shows it again."""
    folder = project(pytester, asked=True)
    (folder / "broken.toml").write_text(FLAGSHIP.read_text().replace('is = "settled"', 'is = "requested"'))
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*stop was answered settled, expected requested*"])
    result.stdout.fnmatch_lines(["replay it with: python -m sim run *broken.toml"])
