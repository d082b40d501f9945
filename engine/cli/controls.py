"""The commands that ask for something: `interrupt`, `resume`, `delete`, `purge`, `quarantine`.

They write what a client of an engine may write, and execute nothing: whoever holds a session obeys, and what
is ready to run is left to the next running node. Each looks first, without touching the file, whether there
is anything to ask for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import attrs
import click

from engine.cli import reading, show
from engine.cli.usage import AS_JSON, CLEAN, FILE, NOT_DONE, SESSION, WAIT, WAIT_S, moment_ms
from engine.errors import NotQuarantined, SessionDeleted, SessionNotFound
from engine.ports import Reader
from engine.records import JSON, Claim, InterruptAnswer, RecoveryRow
from engine.store import open_readonly

if TYPE_CHECKING:
    from engine.api import Engine
    from engine.cli.client import Stop

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class _Target:
    """A session before anything is asked of it."""

    deleted: bool
    pending: int
    parked: int
    claim: Claim | None
    recovery: RecoveryRow | None

    @property
    def quarantined(self) -> bool:
        return self.recovery is not None and self.recovery.recovery_error is not None


def _look(file: str, session_id: str) -> _Target:
    """Raises `SessionNotFound`, or a `StoreError`; nothing is changed."""

    def work(tx: Reader) -> _Target:
        session = tx.session(session_id)
        if session is None:
            raise SessionNotFound(f"there is no session {session_id} in this database")
        return _Target(
            deleted=session.deleted,
            pending=tx.pending_count(session_id),
            parked=tx.parked_count(session_id),
            claim=tx.claim(session_id),
            recovery=tx.recovery(session_id),
        )

    with open_readonly(file) as store:
        return reading.read(store, work)


def _look_alive(file: str, session_id: str) -> _Target:
    """The same, and raises `SessionDeleted` for a tombstone."""
    target = _look(file, session_id)
    if target.deleted:
        raise SessionDeleted(f"session {session_id} was deleted")
    return target


def _ask(file: str, question: Callable[[Engine], Awaitable[T]], wait_s: int = WAIT_S) -> T:
    from engine.cli import (
        client,
    )  # an engine takes longer to load than the commands that only look take to run

    return client.ask(file, question, wait_s=wait_s)


def _answer(as_json: bool, value: JSON, sentence: str) -> None:
    if as_json:
        click.echo(show.json_text(value))
    else:
        show.say(sentence)


# --- interrupt ---------------------------------------------------------------------------------------


@click.command(short_help="Stop what a session does, whichever node executes it.")
@FILE
@SESSION
@WAIT
@AS_JSON
@click.pass_context
def interrupt(ctx: click.Context, file: str, session: str, wait_s: int, as_json: bool) -> None:
    """Ask whoever executes SESSION to stop, wait until it has, and park the session's pending input.

    The request is stored: a node that is slow obeys later, and if the holder is gone, the next running node
    finishes the interruption and doesn't go on with the turn.

    Exit status: 0 the session was stopped or wasn't running, 1 it was asked to stop and hasn't within the
    wait (or an earlier interrupt isn't finished yet), 2 the file, the session or the command line is not
    usable.
    """
    from engine.cli import client

    _tell_wait(_look_alive(file, session), wait_s, as_json)
    stop = _ask(file, lambda engine: client.interrupt(engine, session), wait_s)
    assert stop.answer is not None
    value = {"session_id": session, "answer": str(stop.answer), **_stop_json(stop)}
    _answer(as_json, value, f"{stop.answer}: {_stop_said(stop, wait_s)}")
    ctx.exit(CLEAN if stop.stopped else NOT_DONE)


def _tell_wait(target: _Target, wait_s: int, as_json: bool) -> None:
    """Whoever watches shall know why nothing happens yet."""
    if target.claim is not None and not as_json:
        held = f"{target.claim.owner_id} holds the session in phase {target.claim.phase}"
        show.say(f"{held}; waiting up to {wait_s} s until it has stopped", error=True)


def _stop_json(stop: Stop) -> dict[str, JSON]:
    return {
        "stopped": stop.stopped,
        "holder": None if stop.claim is None else "gone" if stop.holder_gone else "live",
        "parked": stop.parked,
        "claim": None if stop.claim is None else attrs.asdict(stop.claim),
    }


def _stop_said(stop: Stop, wait_s: int) -> str:
    if stop.claim is None:
        parked = f"{show.count(stop.parked, 'input')} parked"
        if stop.answer is InterruptAnswer.NOT_RUNNING:
            return f"nobody held the session; {parked}"
        return f"the execution was stopped, its log is whole; {parked}"
    owner = stop.claim.owner_id
    if stop.holder_gone:
        return f"{owner} held the session and is gone; the next running node finishes the interruption"
    if stop.answer is InterruptAnswer.ALREADY_SETTLING:
        return f"{owner} is finishing another interrupt"
    return (
        f"{owner} has not stopped within {wait_s} s; if it is gone, its lease ends in"
        f" {show.seconds(stop.remaining_ms)}, and the next running node finishes the interruption"
    )


# --- resume ------------------------------------------------------------------------------------------


@click.command(short_help="Let parked input run again.")
@FILE
@SESSION
@AS_JSON
def resume(file: str, session: str, as_json: bool) -> None:
    """Unpark the input of SESSION that an interrupt or a failure had parked; the next running node goes on.

    That nothing was parked is no error.
    """
    target = _look_alive(file, session)
    resumed = bool(target.parked) and _ask(file, lambda engine: engine.resume(session))
    inputs = target.parked if resumed else 0
    value = {
        "session_id": session,
        "resumed": resumed,
        "inputs": inputs,
        "quarantined": target.quarantined,
    }
    then = "it is in quarantine: release it" if target.quarantined else "the next running node goes on"
    said = f"resumed: {show.count(inputs, 'input')}; {then}" if resumed else "nothing was parked"
    _answer(as_json, value, said)


# --- delete and purge --------------------------------------------------------------------------------


@click.command(short_help="Delete a session; its tombstone stays until a purge.")
@FILE
@SESSION
@WAIT
@AS_JSON
@click.pass_context
def delete(ctx: click.Context, file: str, session: str, wait_s: int, as_json: bool) -> None:
    """Stop SESSION, cancel its pending input, and leave a tombstone: it is never executed or written again.

    Its events stay readable until `purge`. A session that was deleted before is no error.

    Exit status: 0 it is deleted, 1 whoever holds it hasn't let go within the wait (it was asked to stop; try
    again), 2 the file, the session or the command line is not usable.
    """
    target = _look(file, session)
    if target.deleted:
        value = {"session_id": session, "deleted": True, "stopped": True, "holder": None}
        _answer(as_json, {**value, "parked": 0, "claim": None}, "it was deleted before")
        return
    _tell_wait(target, wait_s, as_json)
    ctx.exit(_delete(file, session, wait_s, as_json))


def _delete(file: str, session: str, wait_s: int, as_json: bool) -> int:
    from engine.cli import client

    stop = _ask(file, lambda engine: client.delete(engine, session), wait_s)
    said = "deleted; `purge` erases what is left of it"
    if not stop.deleted:
        said = f"not deleted: {_stop_said(stop, wait_s)}; try again then"
    _answer(as_json, {"session_id": session, "deleted": stop.deleted, **_stop_json(stop)}, said)
    return CLEAN if stop.deleted else NOT_DONE


@click.command(short_help="Erase what is left of sessions that were deleted before a time.")
@FILE
@click.option(
    "--before",
    "before_ms",
    callback=moment_ms,
    required=True,
    metavar="TIME",
    help="An ISO date-time (UTC unless it names an offset), or milliseconds since 1970.",
)
@AS_JSON
def purge(file: str, before_ms: int, as_json: bool) -> None:
    """Erase all that is left of every session that was deleted before TIME. It can't be undone."""
    with open_readonly(file):
        pass  # whatever speaks against the file is told before it is opened for writing
    erased = _ask(file, lambda engine: engine.purge(before_ms=before_ms))
    value = {"before_ms": before_ms, "erased": erased}
    said = f"erased {show.count(erased, 'session')} deleted before {show.when(before_ms)}"
    _answer(as_json, value, said)


# --- quarantine --------------------------------------------------------------------------------------


@click.group(short_help="List, release or discard sessions in quarantine.")
def quarantine() -> None:
    """Sessions that aren't executed because executing them failed with a defect."""


@quarantine.command("list", short_help="List the sessions in quarantine, with the reason.")
@FILE
@click.option("--json", "as_json", is_flag=True, help="One JSON object per session and line.")
def list_(file: str, as_json: bool) -> None:
    """List the sessions in quarantine, with the reason. Changes nothing."""
    with open_readonly(file) as store:
        found = [
            (item.row, item.recovery)
            for item in reading.overviews(store)
            if item.quarantined and item.recovery is not None
        ]
    if as_json:
        for row, recovery in found:
            click.echo(show.json_text({"title": row.title, **attrs.asdict(recovery)}))
        return
    show.table(
        ("session", "execution", "takeovers", "title", "reason"),
        (
            (row.session_id, show.short(each.execution_id), each.takeovers, row.title, each.recovery_error)
            for row, each in found
        ),
    )


@quarantine.command(short_help="Lift a quarantine.")
@FILE
@SESSION
@AS_JSON
def release(file: str, session: str, as_json: bool) -> None:
    """Lift the quarantine of SESSION: the reason and the count of take-overs are forgotten.

    The next running node goes on with it: with the turn that was broken off, or with input that waits.
    """
    target = _look_quarantined(file, session)
    _ask(file, lambda engine: engine.release(session))
    waiting = target.pending - target.parked
    value = {"session_id": session, "released": True, "waiting": waiting}
    _answer(
        as_json,
        value,
        f"released; {show.count(waiting, 'input')} waiting: the next running node goes on",
    )


@quarantine.command(short_help="Delete a session that is in quarantine.")
@FILE
@SESSION
@WAIT
@AS_JSON
@click.pass_context
def discard(ctx: click.Context, file: str, session: str, wait_s: int, as_json: bool) -> None:
    """Delete SESSION, which must be in quarantine. See `delete`, also for the exit status."""
    _look_quarantined(file, session)
    ctx.exit(_delete(file, session, wait_s, as_json))


def _look_quarantined(file: str, session_id: str) -> _Target:
    """Raises `NotQuarantined`, too."""
    target = _look_alive(file, session_id)
    if not target.quarantined:
        raise NotQuarantined(f"session {session_id} is in no quarantine")
    return target
