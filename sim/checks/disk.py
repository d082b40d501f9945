"""The invariant about power and disk: what was acknowledged survives, and what survives is a beginning."""

from __future__ import annotations

from collections.abc import Iterator

from engine.errors import AfterCommitFailed
from sim.history import Commit, PowerLoss
from sim.record import Record
from sim.verdict import Violation
from sim.words.naming import Names, seconds
from sim.words.sentence import accuse


def i15(record: Record) -> Iterator[Violation]:
    """On a disk whose syncs are honest, a commit that was acknowledged to its caller survives a power loss;
    what survives is a prefix of what was committed; and `PRAGMA integrity_check` is ok afterwards."""
    for loss in record.run.database.history.losses:
        if not loss.honest:
            continue
        for sentence in loss.wrong:
            what = f"after power was lost at {seconds(loss.moment.true_ms)}, {sentence}"
            yield accuse(record, "I15", what, moment=loss.moment)
        for commit in acknowledged(record, loss):
            yield _gone(record, commit, loss)


def _gone(record: Record, commit: Commit, loss: PowerLoss) -> Violation:
    sessions = [row.session_id for row in commit.events] + [seen.session_id for seen in commit.claims]
    session = sessions[0] if sessions else None
    written = ", ".join(row.type for row in commit.events) or commit.label
    what = (
        f"{Names(record, session).node(commit.node)}'s commit of {written} at {seconds(commit.true_ms)} was "
        f"acknowledged, and was gone after power was lost at {seconds(loss.moment.true_ms)}"
    )
    return accuse(record, "I15", what, session=session, node=commit.node, moment=loss.moment)


def acknowledged(record: Record, loss: PowerLoss) -> list[Commit]:
    """Of the commits that a loss of power took, those whose callers had been told that they were made: the
    trace has the return of each `write` of a task, and a task has one at a time."""
    entries = record.run.trace.entries
    found = []
    for commit in loss.lost:
        for entry in entries[commit.entry + 1 : loss.moment.entry]:
            if (entry.kind, entry.node, entry.task) == ("write", commit.node, commit.task):
                # an after_commit that failed tells its caller that the write is applied
                if isinstance(entry.fields.get("error"), AfterCommitFailed | None):
                    found.append(commit)
                break
    return found


def forgot(record: Record) -> bool:
    """Whether the world once had what it hasn't now: what anybody saw before then is no evidence."""
    return any(acknowledged(record, loss) for loss in record.run.database.history.losses)


def lied_to(record: Record) -> bool:
    """Whether power was lost while something wasn't durable of which a sync had said that it is. SQLite may
    then find old pages of the database beside new ones, and no reader could tell: only that the nodes come to
    rest can be asked."""
    return any(not loss.honest for loss in record.run.database.history.losses)


def database_lost(record: Record) -> Iterator[Violation]:
    """Why a run ended that has no database any more. Nobody's breach where the disk lied, but what the file
    expects can't be looked at."""
    if record.run.scenario.expect:
        yield accuse(record, "expect", f"the run ended early: {record.run.ended}")


DISK_CHECKS = (i15,)
