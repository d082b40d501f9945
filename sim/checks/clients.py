"""The invariants about what clients asked for: input that is never forgotten, interrupts that are obeyed."""

from __future__ import annotations

from collections.abc import Iterator

from engine import events as ev
from sim.record import Happened, Record
from sim.verdict import Violation

GOES_ON = (ev.StepStarted.type, ev.InputPromoted.type)
"""What an execution writes only if it goes on with its turn."""

ENDS = (ev.ExecutionSucceeded.type, ev.ExecutionFailed.type, ev.ExecutionInterrupted.type)


def _at(record: Record, item: Happened, rule: str, sentence: str) -> Violation:
    return Violation(
        rule=rule,
        sentence=sentence,
        session=item.row.session_id,
        node=item.commit.node,
        true_ms=item.commit.true_ms,
        clocks=record.clocks_at(item.commit.true_ms),
        around=record.around(item.commit.entry),
    )


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
                    sentence = f"{item.row.execution_id} ended with success while {left} was pending"
                    yield _at(record, item, "I11", sentence)


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
                sentence = f"{item.row.type} was written after the interrupt had been answered settled"
                yield _at(record, item, "I12", sentence)


def _resumed(record: Record, happened: list[Happened]) -> Iterator[Violation]:
    """A request holds for whoever has the claim, from the commit that notes it until an execution ends."""
    ends = {item.commit.entry for item in happened if item.row.type in ENDS}
    goes_on = {item.commit.entry: item for item in happened if item.row.type in GOES_ON}
    session_id = happened[0].row.session_id
    asked = False
    for commit in record.commits:
        rows = [seen for seen in commit.claims if seen.session_id == session_id]
        asked = asked or any(row.before and row.before.interrupt_seq is not None for row in rows)
        item = goes_on.get(commit.entry)
        if asked and item is not None:
            sentence = f"{commit.node} wrote {item.row.type} although an interrupt had been asked for"
            yield _at(record, item, "I12", sentence)
        asked = asked or any(row.after and row.after.interrupt_seq is not None for row in rows)
        if commit.entry in ends or any(row.before and row.after is None for row in rows):
            asked = False


def _never_asked(record: Record, happened: list[Happened]) -> Iterator[Violation]:
    fired, asked = record.run.ledger.fired, []
    for number, action in enumerate(record.run.scenario.actions, start=1):
        name = action.as_ or f"{action.do}-{number}"
        if action.do in ("interrupt", "delete", "discard") and action.session is not None and name in fired:
            asked.append((record.session_id(action.session), fired[name].entry))
    for item in happened:
        if item.row.type != ev.ExecutionInterrupted.type:
            continue
        if not any(s == item.row.session_id and entry <= item.commit.entry for s, entry in asked):
            sentence = f"{item.row.execution_id} ended as interrupted by a user, and nobody had asked for it"
            yield _at(record, item, "I12", sentence)


CLIENT_CHECKS = (i11, i12)
