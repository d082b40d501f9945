"""What the commands take and refuse: scenario files, projects, and files that can't be written."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from sim.project import Project, find_project
from sim.scenario import Scenario, ScenarioError, load_scenario


class BadInput(click.ClickException):
    """The command can't do what was asked: exit status 2, and why on standard error."""

    exit_code = 2

    def show(self, file: object = None) -> None:
        """The message alone, as the other commands say it."""
        click.echo(self.format_message(), err=True)


class ScenarioFile(click.ParamType[Scenario]):
    """A path of a scenario file; the command gets the scenario. Every problem of the file is told."""

    name = "file"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Scenario:
        """Read the file. Raises `BadInput`."""
        if isinstance(value, Scenario):
            return value
        try:
            return load_scenario(str(value))
        except ScenarioError as exc:
            raise BadInput(str(exc)) from exc


SCENARIO = ScenarioFile()


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The scenario files that the paths name, folders expanded and sorted."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.rglob("*.toml"))
            if not inside:
                raise BadInput(f"{path}: no scenario file (*.toml) in this folder")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise BadInput(f"{path}: there is no such file or folder")
    return list(dict.fromkeys(found))


def load_all(paths: Sequence[Path]) -> list[Scenario]:
    """All of the files, or a refusal that tells every problem of every one."""
    found: list[Scenario] = []
    wrong: list[str] = []
    for path in paths:
        try:
            found.append(load_scenario(path))
        except ScenarioError as exc:
            wrong.append(str(exc))
    if wrong:
        raise BadInput("\n".join(wrong))
    return found


class ProjectName(click.ParamType[str]):
    """The name of a function that makes a `sim.project.Project`; the command gets the name, as other
    processes need it, too. The current directory can be imported from."""

    name = "module:function"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Look whether it is there, and makes what it should. Raises `BadInput`."""
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            made = find_project(value)()
        except (ValueError, TypeError, ImportError, AttributeError) as exc:
            raise BadInput(f"--project {value}: {exc}") from exc
        except Exception as exc:
            raise BadInput(f"--project {value}: it raised {type(exc).__name__}: {exc}") from exc
        if not isinstance(made, Project):
            raise BadInput(f"--project {value}: it made a {type(made).__name__}, not a Project")
        return value


project_option = click.option(
    "--project",
    type=ProjectName(),
    metavar="MODULE:FUNCTION",
    help="The function that makes your own Project: your provider, tools and invariants.",
)
"""The option of every command that runs worlds."""


def refuse_without_engine(scenario: Scenario, what: str) -> None:
    """Raises `BadInput` for a file that expects that no engine opens: there is nothing to `what` then."""
    if scenario.config_refused is not None:
        file = scenario.file
        raise BadInput(f"{file}: this scenario expects that no engine opens, so there is nothing to {what}")


@contextlib.contextmanager
def unless_unwritable() -> Iterator[None]:
    """Turns an `OSError` inside into `BadInput`."""
    try:
        yield
    except OSError as exc:
        raise BadInput(f"{exc.filename}: can't be written: {exc.strerror}") from exc
