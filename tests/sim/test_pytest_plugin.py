"""The pytest plugin: inert unless asked, and clear when a scenario breaks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLAGSHIP = (ROOT / "scenarios" / "interrupted_step_started.toml").read_text(encoding="utf-8")
FAIL_SAFE_S = 120


def run_pytest(folder: Path, scenario: str, *, asked: bool, project: str = "", name: str = "one") -> str:
    """What pytest prints in a project with one scenario file; in a process of its own."""
    (folder / "worlds").mkdir()
    (folder / "worlds" / f"{name}.toml").write_text(scenario, encoding="utf-8")
    option = "fencepost_scenarios = worlds\n" if asked else ""
    option += f"fencepost_project = {project}\n" if project else ""
    (folder / "pytest.ini").write_text(f"[pytest]\n{option}", encoding="utf-8")
    path = os.pathsep.join([str(ROOT), str(folder)])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "sim.pytest_plugin", "worlds"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
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


# --- a project of the user's own ---------------------------------------------------------------------


def documented(language: str, beginning: str) -> str:
    """The block of the simulator's page that begins so."""
    page = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
    section = page[page.index("## Your own project in these worlds") :]
    found = re.search(rf"^```{language}\n({re.escape(beginning)}.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def run_with_project(folder: Path, source: str) -> str:
    """What pytest prints for the page's scenario, with a project of this source."""
    project = "test_bookings:bookings"
    (folder / "test_bookings.py").write_text(source, encoding="utf-8")
    world = documented("toml", "proves")
    return run_pytest(folder, world, asked=True, project=project, name="power_cut_while_booking")


def test_the_projects_provider_tools_and_invariant_take_part(tmp_path: Path) -> None:
    """With the project of the documentation its scenario passes."""
    assert "1 passed" in run_with_project(tmp_path, documented("python", "# test_bookings.py"))


def mistaken() -> str:
    """The project of the documentation, with the mistake that the page describes."""
    right, wrong = (
        "(context.fence.session_id, " + key for key in ('"the order")', "context.assistant_message_id)")
    )
    source = documented("python", "# test_bookings.py")
    assert right in source
    return source.replace(right, wrong)


def test_a_broken_invariant_of_the_project_is_told_as_documented(tmp_path: Path) -> None:
    """With the mistake, pytest prints what the page shows, line for line."""
    printed = run_with_project(tmp_path, mistaken())
    assert "1 failed" in printed
    assert documented("text", "a lost its power") in printed


def test_the_command_of_the_message_shows_it_again(tmp_path: Path) -> None:
    """What the page says to replay with, in that folder, tells the same."""
    run_with_project(tmp_path, mistaken())
    told, _, replay = documented("text", "a lost its power").strip().partition("\n\nreplay it with: python ")
    done = subprocess.run(
        [sys.executable, *replay.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=FAIL_SAFE_S,
        check=False,
    )
    assert done.returncode == 1
    assert [line for line in told.splitlines() if line.strip() not in done.stdout] == []


def test_a_project_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The failure says which setting is wrong, and why."""
    printed = run_with_project(tmp_path, "bookings = 3\n")
    named = "test_bookings:bookings"
    assert f"fencepost_project = {named}: {named} isn't a function" in printed
