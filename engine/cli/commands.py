"""The way in, and the commands that only look: `log`, `sessions`, `verify`; and `demo`."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Sequence
from typing import Any

import attrs
import click

from engine.cli import reading, show
from engine.cli.controls import delete, interrupt, purge, quarantine, resume
from engine.cli.status import status
from engine.cli.usage import BAD_INPUT, BREACHED, CLEAN, FILE, INTERRUPTED, PIPE_CLOSED, SESSION
from engine.codec import decode_row
from engine.errors import EventError, FencepostError
from engine.records import JSON, EventRow
from engine.store import open_readonly
from engine.store.threaded import pause
from engine.verify import CHECKS, NOT_CHECKABLE, Unreadable, UnreadableRow


class _Commands(click.Group):
    """A group that is quiet when its output is closed; click itself would exit as if the check had failed."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            ctx.exit(PIPE_CLOSED)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def commands() -> None:
    """Fencepost: durable agent sessions.

    log, sessions, status, verify and quarantine list look into a database FILE and change nothing. interrupt,
    resume, delete, purge, quarantine release and quarantine discard write what they ask for, and execute
    nothing. All of them work while engines have the file open. Output is a table on a terminal and
    tab-separated lines in a pipe; --json gives JSON.

    Exit status: 0 all is well, 1 verify found something or what was asked for isn't done within the wait, 2
    the file, the session or the command line is not usable, 130 after Ctrl-C.
    """


for command in (status, interrupt, resume, quarantine, delete, purge):
    commands.add_command(command)


# --- sessions ----------------------------------------------------------------------------------------


@commands.command(short_help="List the sessions in FILE.")
@FILE
@click.option("--json", "as_json", is_flag=True, help="One JSON object per session and line.")
def sessions(file: str, as_json: bool) -> None:
    """List the sessions in FILE: state, number of events, inputs that wait, title."""
    with open_readonly(file) as store:
        found = reading.overviews(store)
        if as_json:
            for item in found:
                click.echo(show.json_text(_session_json(item)))
            return
        show.table(
            ("session", "status", "claim", "events", "pending", "title"),
            (
                (
                    item.row.session_id,
                    item.status,
                    "-" if item.claim is None else item.claim.phase,
                    item.latest_seq + 1,
                    f"{item.pending} ({item.parked} parked)" if item.parked else item.pending,
                    item.row.title,
                )
                for item in found
            ),
        )


def _session_json(item: reading.Overview) -> JSON:
    return {
        **attrs.asdict(item.row),
        "status": item.status,
        "latest_seq": item.latest_seq,
        "pending": item.pending,
        "parked": item.parked,
        "claim": None if item.claim is None else attrs.asdict(item.claim),
        "recovery": None if item.recovery is None else attrs.asdict(item.recovery),
    }


# --- log ---------------------------------------------------------------------------------------------


EVENT_HEADINGS = ("seq", "time", "execution", "type", "data")
EVENT_WIDTHS = (5, 24, 12, 22, 0)


@commands.command(short_help="Print the event log of a session.")
@FILE
@SESSION
@click.option("--json", "as_json", is_flag=True, help="One JSON object per event and line.")
@click.option("--after", type=int, default=-1, metavar="N", help="Only events with a seq above N.")
@click.option("--follow", "-f", is_flag=True, help="Go on with new events as they are stored, until Ctrl-C.")
def log(file: str, session: str, as_json: bool, after: int, follow: bool) -> None:
    """Print the event log of SESSION in FILE, oldest event first.

    An event that can't be decoded is marked, and the rest is still printed. With --follow the log is printed
    line by line, whichever process writes it, until Ctrl-C (exit status 130) or the end of a deleted session.
    """
    with open_readonly(file) as store:
        if follow:
            rows = reading.follow(store, session, after, pause)
        else:
            rows = reading.event_rows(store, session, after)
        if as_json:
            for row in rows:
                click.echo(show.json_text(_event_json(row)))
        elif follow:
            show.lines(EVENT_WIDTHS, itertools.chain([EVENT_HEADINGS], map(_event_cells, rows)))
        else:
            show.table(EVENT_HEADINGS, map(_event_cells, rows))


def _event_cells(row: EventRow) -> tuple[object, ...]:
    return row.seq, show.when(row.created), show.short(row.execution_id), row.type, _said(row)


def _event_json(row: EventRow) -> JSON:
    problem = _problem(row)
    return {
        "id": row.event_id,
        "session_id": row.session_id,
        "seq": row.seq,
        "type": row.type,
        "version": row.version,
        "created": row.created,
        "execution_id": row.execution_id,
        "data": reading.data_of(row),
        **({} if row.location is None else {"location": row.location}),
        **({} if problem is None else {"unreadable": problem}),
    }


def _said(row: EventRow) -> str:
    problem, data = _problem(row), reading.data_of(row)
    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if key != "session_id"}
    return show.compact(data) if problem is None else f"UNREADABLE: {problem}"


def _problem(row: EventRow) -> str | None:
    try:
        decode_row(row)
    except EventError as exc:
        return str(exc)
    return None


# --- verify ------------------------------------------------------------------------------------------


@commands.command(short_help="Check the invariants of every session in FILE.")
@FILE
@click.option("--json", "as_json", is_flag=True, help="The whole report as one JSON object.")
@click.pass_context
def verify(ctx: click.Context, file: str, as_json: bool) -> None:
    """Check that the sessions in FILE keep every invariant that a log can show.

    What waits for a node or a person (a claim to recover, an admitted input, a quarantine) is listed as
    pending and is no fault. Exit status: 0 clean, 1 something is broken or can't be read, 2 FILE is no
    database of Fencepost.
    """
    with open_readonly(file) as store:
        report = reading.verify_file(store, file)
    if as_json:
        click.echo(show.json_text(_report_json(report), indent=2))
    else:
        _print_report(report)
    ctx.exit(CLEAN if report.ok else BREACHED)


def _report_json(report: reading.Report) -> JSON:
    return {
        **attrs.asdict(report),
        "checked": list(CHECKS),
        "not_checkable": dict(NOT_CHECKABLE),
        "ok": report.ok,
    }


def _print_report(report: reading.Report) -> None:
    show.say(f"{report.file}: {show.count(report.sessions, 'session')}, {show.count(report.events, 'event')}")
    show.say(f"checked: {', '.join(CHECKS)}")
    show.say(f"not checkable here, for want of a trace: {', '.join(NOT_CHECKABLE)}")
    found = [
        *(("damage", "-", "-", said) for said in report.damage),
        *(
            (f"breach of {b.invariant}", b.session_id, "-" if b.seq is None else b.seq, b.sentence)
            for b in report.breaches
        ),
        *(("unreadable", each.session_id, *_what(each)) for each in report.unreadable),
        *((f"pending {each.kind}", each.session_id, "-", each.sentence) for each in report.pending),
    ]
    if found:
        show.table(("finding", "session", "seq", "what"), found)
    show.say(_verdict(report))


def _what(each: Unreadable | UnreadableRow) -> tuple[object, str]:
    if isinstance(each, Unreadable):
        return each.seq, each.reason
    return "-", f"table {each.table}: {each.reason}"


def _verdict(report: reading.Report) -> str:
    if report.ok:
        return "clean" if not report.pending else f"clean, with {len(report.pending)} pending"
    told = {
        "broken": len(report.breaches),
        "unreadable": len(report.unreadable),
        "damaged": len(report.damage),
    }
    return "NOT CLEAN: " + ", ".join(f"{number} {name}" for name, number in told.items() if number)


# --- demo --------------------------------------------------------------------------------------------


@commands.command(short_help="Watch a scripted session; needs no model and no network.")
@click.option(
    "--keep",
    type=click.Path(),
    metavar="FILE",
    help="Keep the database in FILE, which must not exist yet. Without it a temporary folder is used.",
)
def demo(keep: str | None) -> None:
    """Watch a scripted session: a turn with a tool, a turn that is interrupted, and the check of its log.

    It needs no model and no network, and takes about three seconds.
    """
    from engine import demo as demonstration  # the others need no event loop

    demonstration.run(keep)


# --- the way in --------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Every expected error is one line on stderr."""
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = commands.main(arguments, prog_name="python -m engine", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as exc:
        exc.show()
        return exc.exit_code
    except click.Abort:
        return INTERRUPTED
    except FencepostError as exc:
        show.say(f"Error: {exc}", error=True)
        return BAD_INPUT
    except BrokenPipeError:
        code = PIPE_CLOSED
    if code == PIPE_CLOSED:
        _discard_output()
    return code if isinstance(code, int) else CLEAN


def _discard_output() -> None:
    """Nobody reads on: let the interpreter's last flush go nowhere."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
