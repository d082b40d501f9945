"""The invariants that any database shows, judged on the final one by the engine's own `verify`."""

from __future__ import annotations

import re

from engine.verify import Breach, read_session, verify_session
from sim.history import Commit
from sim.record import Record
from sim.verdict import Violation
from sim.words.naming import Names, seconds
from sim.words.sentence import accuse

ABOUT_THE_END = ("I7", "I10")
"""What is wrong with how a session was left, whichever event the breach names."""

NEVER_CAME = "has no terminal"
"""So is a step whose end never came: the event that the breach names began it, and began it rightly."""

TOO_LATE = re.compile(r"(\S+) of execution (\S+) comes after execution (\S+) took the session at seq (\d+)")
"""The breach of I1 that a fence is there for; the simulator knows who was accepted."""


def database_checks(record: Record) -> list[Violation]:
    """Every breach that `python -m engine verify` would report."""
    reader = record.run.database.reader()
    return [
        _told(record, session_id, breach)
        for session_id in record.sessions()
        for breach in verify_session(read_session(reader, session_id)).breaches
    ]


def _told(record: Record, session_id: str, breach: Breach) -> Violation:
    rule, what = breach.invariant, breach.sentence
    commit = _where(record, session_id, breach)
    if commit is None:
        return accuse(record, rule, what, session=session_id)
    moment, node = record.moment_of(commit), Names(record, session_id).node(commit.node)
    late = TOO_LATE.fullmatch(what)
    types = [row.type for row in commit.events if (row.session_id, row.seq) == (session_id, breach.seq)]
    if late is not None:
        held = f"{late[3]} had held the session since seq {late[4]}"
        what = f"{late[1]} of {late[2]} was accepted, although {held}"
    elif types:
        what = f"{node} wrote {types[0]}: {what}"
    else:
        what = f"after {node}'s write at {seconds(commit.true_ms)} {what}"
    return accuse(record, rule, what, session=session_id, node=commit.node, moment=moment)


def _where(record: Record, session_id: str, breach: Breach) -> Commit | None:
    """The commit that broke it: the one of the event that is wrong, or the session's last one."""
    touching = [
        commit
        for commit in record.commits
        if any(row.session_id == session_id for row in commit.events)
        or any(seen.session_id == session_id for seen in commit.claims)
    ]
    left = breach.invariant in ABOUT_THE_END or breach.sentence.partition(",")[0].endswith(NEVER_CAME)
    if not left and breach.seq is not None:
        written = [item.commit for item in record.happened[session_id] if item.row.seq == breach.seq]
        return written[0] if written else None
    return touching[-1] if touching else None
