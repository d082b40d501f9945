"""A pytest plugin that collects scenario files as tests.

Inert unless the project's configuration names its folder of scenarios:

    [tool.pytest.ini_options]
    fencepost_scenarios = "scenarios"

Each `*.toml` below it is then a test; a failure prints what broke and the command that replays it.
A project of the user's own takes part if its function is named, too, as `module:function`:

    fencepost_project = "tests.worlds:bookings"

Importing this module costs next to nothing: the simulator is imported when the first file is collected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    parser.addini(
        "fencepost_scenarios", "folder of Fencepost scenario files, relative to the root", default=""
    )
    parser.addini(
        "fencepost_project", "function that makes the project for a run, as module:function", default=""
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ScenarioFile | None:
    """A scenario file in the configured folder."""
    folder = parent.config.getini("fencepost_scenarios")
    if not folder or file_path.suffix != ".toml":
        return None
    root = (parent.config.rootpath / folder).resolve()
    if root not in file_path.resolve().parents:
        return None
    collected: ScenarioFile = ScenarioFile.from_parent(parent, path=file_path)
    return collected


class ScenarioBroken(Exception):
    """A scenario didn't hold; the text is what pytest prints."""


class ProjectNotFound(Exception):
    """The configured function that makes the project isn't there."""


class ScenarioFile(pytest.File):
    """One file, which is one test."""

    def collect(self) -> Iterator[ScenarioItem]:
        """The one test."""
        item: ScenarioItem = ScenarioItem.from_parent(self, name=self.path.stem)
        yield item


class ScenarioItem(pytest.Item):
    """Runs the scenario twice: what holds must also be the same in every run of its tape."""

    @property
    def _project(self) -> str:
        named: str = self.config.getini("fencepost_project")
        return named

    def runtest(self) -> None:
        """Run and judge."""
        from sim.cli.output import violation_lines
        from sim.project import find_project
        from sim.run import run_scenario
        from sim.scenario import load_scenario

        try:
            project = find_project(self._project or None)
        except (ValueError, TypeError, ImportError, AttributeError) as exc:
            raise ProjectNotFound(f"fencepost_project = {self._project}: {exc}") from exc
        result = run_scenario(load_scenario(self.path), check_determinism=True, project=project)
        if result.violations:
            raise ScenarioBroken("\n".join(violation_lines(result.violations, indent="")))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The broken rules, and how to see them again."""
        from sim.scenario import ScenarioError

        if isinstance(excinfo.value, ProjectNotFound):
            return str(excinfo.value)
        if isinstance(excinfo.value, ScenarioError):
            return str(excinfo.value)
        if isinstance(excinfo.value, ScenarioBroken):
            own = f" --project {self._project}" if self._project else ""
            file = os.path.relpath(self.path, self.config.invocation_params.dir)
            return f"{excinfo.value}\n\nreplay it with: python -m sim run{own} {file}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the test is, for pytest's headings."""
        return self.path, 0, f"scenario {self.name}"
