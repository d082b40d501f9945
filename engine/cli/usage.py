"""What the commands share on their lines: exit codes, arguments, options."""

from __future__ import annotations

import datetime

import click

from engine.cli import show

CLEAN, BREACHED, BAD_INPUT = 0, 1, 2
"""Exit codes. A usage error is bad input, too."""

NOT_DONE = 1
"""Exit code of what was asked for and isn't done within the wait."""

PIPE_CLOSED = 141
"""Exit code when whoever read our output has gone: what a shell reports for SIGPIPE."""

INTERRUPTED = 130
"""Exit code after Ctrl-C: what a shell reports for SIGINT."""

WAIT_S, WAIT_S_MAX = 20, 86_400

FILE = click.argument("file", type=click.Path())
SESSION = click.argument("session")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="The outcome as one JSON object.")
WAIT = click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(1, WAIT_S_MAX),
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until whoever executes the session has stopped.",
)


def moment_ms(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """A wall-clock time in milliseconds: given as such, or in ISO 8601, which is UTC unless it says more."""
    try:
        if value.isascii() and value.isdigit():
            return int(value)
        moment = datetime.datetime.fromisoformat(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return (moment - show.EPOCH) // datetime.timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        said = f"{show.plain(value)} is neither an ISO date-time (2026-11-30T12:00:00Z) nor milliseconds"
        raise click.BadParameter(said, ctx, param) from None
