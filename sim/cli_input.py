"""What the commands take and refuse: scenario files, and files that can't be written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

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


@contextlib.contextmanager
def unless_unwritable() -> Iterator[None]:
    """Turns an `OSError` inside into `BadInput`."""
    try:
        yield
    except OSError as exc:
        raise BadInput(f"{exc.filename}: can't be written: {exc.strerror}") from exc
