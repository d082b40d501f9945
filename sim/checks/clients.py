"""The invariants about what clients asked for: input that is never forgotten, interrupts that are obeyed."""

from __future__ import annotations

from collections.abc import Iterator

from engine import events as ev
from sim.record import Happened, Record
from sim.verdict import Violation
from sim.words.naming import Names, seconds
from sim.words.sentence import accuse

GOES_ON = (ev.StepStarted.type, ev.InputPromoted.type)
"""What an execution writes only if it goes on with its turn."""

ENDS = (ev.ExecutionSucceeded.type, ev.ExecutionFailed.type, ev.ExecutionInterrupted.type)


def _at(record: Record, item: Happened, rule: str, what: str) -> Violation:
    moment = record.moment_of(item.commit)
    return accuse(record, rule, what, session=item.row.session_id, node=item.commit.node, moment=moment)


def i11(record: Record) -> Iterator[Violation]:
    """Input is pending only while somebody has it before them: an execution that succeeds leaves none, but
    for what is parked."""
    for happened in record.happened.values():
        waiting: dict[str, int] = {}
        parked: dict[str, int] = {}
        for item in happened:
            match item.event:
                case ev.InputAdmitted(input_id=input_id):
                    waiting[input_id] = item.row.seq
                case ev.InputPromoted(input_id=input_id) | ev.InputCancelled(input_id=input_id):
                    waiting.pop(input_id, None)
                    parked.pop(input_id, None)
                case ev.InputResumed():
                    waiting.update(parked)
                    parked.clear()
                case (
                    ev.InputParked(through=int() as through)
                    | ev.ExecutionInterrupted(parked_through=through)
                    | ev.ExecutionFailed(parked_through=int() as through)
                ):
                    reached = {one: seq for one, seq in waiting.items() if seq <= through}
                    parked.update(reached)
                    waiting = {one: seq for one, seq in waiting.items() if one not in reached}
                case ev.ExecutionSucceeded() if waiting:
                    left = ", ".join(waiting)
                    were = "was" if len(waiting) == 1 else "were"
                    what = f"{item.row.execution_id} ended with success while {left} {were} pending"
                    yield _at(record, item, "I11", what)


def i12(record: Record) -> Iterator[Violation]:
    """After an interrupt was answered `settled` that execution writes nothing; once one was asked for, the
    turn isn't resumed, by whoever holds the claim; and nobody is interrupted who wasn't asked to stop."""
    for happened in record.happened.values():
        yield from _written_after_settled(record, happened)
        yield from _resumed(record, happened)
        yield from _never_asked(record, happened)


def _written_after_settled(record: Record, happened: list[Happened]) -> Iterator[Violation]:
    settled = [one for one in record.run.ledger.interrupts if one.answer == "settled"]
    for item in happened:
        for answered in settled:
            late = item.commit.entry > answered.moment.entry
            if late and item.row.execution_id is not None and item.row.execution_id == answered.execution_id:
                node = Names(record, item.row.session_id).node(item.commit.node)
                when = seconds(answered.moment.true_ms)
                what = f"{node} wrote {item.row.type} after an interrupt had been answered settled at {when}"
                yield _at(record, item, "I12", what)


def _resumed(record: Record, happened: list[Happened]) -> Iterator[Violation]:
    """A request holds for whoever has the claim, from the commit that notes it until an execution ends."""
    ends = {item.commit.entry for item in happened if item.row.type in ENDS}
    goes_on = {item.commit.entry: item for item in happened if item.row.type in GOES_ON}
    session_id = happened[0].row.session_id
    asked: float | None = None
    for commit in record.commits:
        rows = [seen for seen in commit.claims if seen.session_id == session_id]
        if asked is None and any(row.before and row.before.interrupt_seq is not None for row in rows):
            asked = commit.true_ms
        item = goes_on.get(commit.entry)
        if asked is not None and item is not None:
            node = Names(record, session_id).node(commit.node)
            what = (
                f"{node} wrote {item.row.type} although an interrupt had been asked for at {seconds(asked)}"
            )
            yield _at(record, item, "I12", what)
        if asked is None and any(row.after and row.after.interrupt_seq is not None for row in rows):
            asked = commit.true_ms
        if commit.entry in ends or any(row.before and row.after is None for row in rows):
            asked = None


def _never_asked(record: Record, happened: list[Happened]) -> Iterator[Violation]:
    fired, asked = record.run.ledger.fired, []
    for number, action in enumerate(record.run.scenario.actions, start=1):
        name = action.as_ or f"{action.do}-{number}"
        if action.do in ("interrupt", "delete", "discard") and action.session is not None and name in fired:
            asked.append((record.session_id(action.session), fired[name].entry))
    specs = {spec.name: spec for spec in record.run.scenario.tools if spec.asks in ("interrupt", "delete")}
    for start in record.run.ledger.tools:
        if start.tool in specs:
            named = specs[start.tool].session
            session_id = start.session_id if named is None else record.session_id(named)
            asked.append((session_id, start.moment.entry))
    for item in happened:
        if item.row.type != ev.ExecutionInterrupted.type:
            continue
        if not any(s == item.row.session_id and entry <= item.commit.entry for s, entry in asked):
            what = f"{item.row.execution_id} ended as interrupted by a user, and nobody had asked for it"
            yield _at(record, item, "I12", what)


CLIENT_CHECKS = (i11, i12)
