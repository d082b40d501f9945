"""I1 and I7: who wrote what, and that nobody was forgotten."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from engine import events as ev
from engine.events import Stored
from engine.records import Claim, Phase
from engine.verify.records import Breach, Pending, SessionRecord
from engine.verify.steps import open_step

BY_CLIENTS = (
    ev.SessionCreated,
    ev.SessionRenamed,
    ev.SessionDeletedEvent,
    ev.InputAdmitted,
    ev.InputDeliveryChanged,
    ev.InputCancelled,
    ev.InputParked,
    ev.InputResumed,
)
"""Written without a claim, and so without an execution id. All other events carry one."""

ENDINGS = (ev.ExecutionSucceeded, ev.ExecutionFailed, ev.ExecutionInterrupted, ev.ExecutionHandedOver)


# --- I1 ----------------------------------------------------------------------------------------------


def i1(record: SessionRecord) -> Iterator[Breach]:
    """No event of an execution follows the start of a later one; generations only grow; every event that an
    execution wrote carries its id; an execution ends at most once, and writes nothing afterwards."""
    yield from _ids_are_carried(record)
    yield from _nothing_after_a_successor(record)
    yield from _generations_grow(record)
    yield from _successors_name_the_lost(record)
    yield from _one_ending_each(record)
    yield from _claim_is_the_latest(record)


def _ids_are_carried(record: SessionRecord) -> Iterator[Breach]:
    for item in record.stored:
        by_client = isinstance(item.event, BY_CLIENTS)
        if by_client and item.execution_id is not None:
            sentence = f"{item.type} is written by clients, and carries execution {item.execution_id}"
            yield record.breach("I1", item.seq, sentence)
        elif not by_client and item.execution_id is None:
            sentence = f"{item.type} is written by executions, and carries no execution id"
            yield record.breach("I1", item.seq, sentence)


def _nothing_after_a_successor(record: SessionRecord) -> Iterator[Breach]:
    started: dict[str, int] = {}  # execution id to the seq of its start
    latest: str | None = None
    for item in record.events:
        execution_id = item.execution_id
        if execution_id is None:
            continue
        if item.type == "execution.started":
            if execution_id in started:
                sentence = (
                    f"execution {execution_id} starts twice: at seq {started[execution_id]} and {item.seq}"
                )
                yield record.breach("I1", item.seq, sentence)
            started[execution_id], latest = item.seq, execution_id
        elif execution_id not in started:
            if not record.hides(before=item.seq + 1):  # it may itself be the start, and unreadable
                sentence = f"{item.type} belongs to execution {execution_id}, which had not started"
                yield record.breach("I1", item.seq, sentence)
        elif execution_id != latest:
            assert latest is not None
            sentence = (
                f"{item.type} of execution {execution_id} comes after execution {latest}"
                f" took the session at seq {started[latest]}"
            )
            yield record.breach("I1", item.seq, sentence)


def _starts(record: SessionRecord) -> list[tuple[Stored, ev.ExecutionStarted]]:
    return [(item, item.event) for item in record.stored if isinstance(item.event, ev.ExecutionStarted)]


def _generations_grow(record: SessionRecord) -> Iterator[Breach]:
    starts = _starts(record)
    for (_, before), (item, event) in itertools.pairwise(starts):
        if event.generation <= before.generation:
            sentence = f"generation {event.generation} follows generation {before.generation}"
            yield record.breach("I1", item.seq, sentence)
    if starts and record.generation is not None and record.generation < starts[-1][1].generation:
        item, event = starts[-1]
        sentence = (
            f"the log has come to generation {event.generation}, and the session's fence stands at"
            f" {record.generation}"
        )
        yield record.breach("I1", item.seq, sentence)


def _successors_name_the_lost(record: SessionRecord) -> Iterator[Breach]:
    """A take-over names the execution before it, which didn't end, or handed over."""
    endings = _endings(record)
    before: Stored | None = None
    for item, event in _starts(record):
        named, since = event.previous_execution_id, -1 if before is None else before.seq
        if named is not None and not record.hides(after=since, before=item.seq):
            ending = endings.get(named)
            if before is None or named != before.execution_id:
                last = "none" if before is None else before.execution_id
                sentence = f"it takes over from execution {named}, and the latest one before it was {last}"
                yield record.breach("I1", item.seq, sentence)
            elif ending is not None and ending.seq < item.seq and not _hands_over(ending):
                sentence = f"it takes over from execution {named}, which {_ended(ending)}"
                yield record.breach("I1", item.seq, sentence)
        before = item


def _endings(record: SessionRecord) -> dict[str | None, Stored]:
    """The first ending of each execution."""
    found: dict[str | None, Stored] = {}
    for item in record.of(*ENDINGS):
        found.setdefault(item.execution_id, item)
    return found


def _hands_over(ending: Stored) -> bool:
    return isinstance(ending.event, ev.ExecutionHandedOver)


def _ended(ending: Stored) -> str:
    return f"ended with {ending.type} at seq {ending.seq}"


def _one_ending_each(record: SessionRecord) -> Iterator[Breach]:
    ended: dict[str, Stored] = {}
    for item in record.events:
        if item.execution_id is None:
            continue
        first = ended.get(item.execution_id)
        is_ending = isinstance(item, Stored) and isinstance(item.event, ENDINGS)
        if first is not None:
            how = "ends again with" if is_ending else "goes on with"
            sentence = (
                f"execution {item.execution_id} ended with {first.type} at seq {first.seq},"
                f" and {how} {item.type} at seq {item.seq}"
            )
            yield record.breach("I1", item.seq, sentence)
        elif is_ending:
            assert isinstance(item, Stored)
            ended[item.execution_id] = item


def _claim_is_the_latest(record: SessionRecord) -> Iterator[Breach]:
    """The claim's execution is the latest that started; one that only clears `cancelled` leaves no trace."""
    claim, starts = record.claim, _starts(record)
    if claim is None or record.hides():
        return
    if record.generation is not None and record.generation != claim.generation:
        sentence = f"the claim has generation {claim.generation}, the session's fence {record.generation}"
        yield record.breach("I1", None, sentence)
    if not starts:
        yield record.breach("I1", None, f"execution {claim.execution_id} holds the claim and never started")
        return
    item, event = starts[-1]
    holds = (claim.execution_id, claim.generation)
    only_clears = claim.phase is Phase.CANCELLED and claim.generation > event.generation
    if holds != (item.execution_id, event.generation) and not only_clears:
        sentence = (
            f"execution {claim.execution_id} holds the claim at generation {claim.generation}, and the latest"
            f" that started is {item.execution_id} at generation {event.generation}"
        )
        yield record.breach("I1", item.seq, sentence)


# --- I7 ----------------------------------------------------------------------------------------------


def i7(record: SessionRecord) -> Iterator[Breach]:
    """Nobody is forgotten: without a claim each session is idle, parked, quarantined, or failed with a
    reason; and a claim says of its session what the log says, so that recovery settles the right thing."""
    if record.claim is None:
        yield from _ended_without_claim(record)
    elif record.deleted:
        yield record.breach(
            "I7", None, f"the session is deleted, and {_holder(record.claim)} holds its claim"
        )
    elif not record.hides():
        yield from _claim_knows_its_step(record, record.claim)
        yield from _claim_knows_its_ending(record, record.claim)


def _holder(claim: Claim) -> str:
    return f"execution {claim.execution_id}"


def _ended_without_claim(record: SessionRecord) -> Iterator[Breach]:
    starts = _starts(record)
    if not starts or not record.unattended:
        return
    item = starts[-1][0]
    if record.hides(after=item.seq):
        return
    ending = _endings(record).get(item.execution_id)
    if ending is None:
        sentence = f"execution {item.execution_id} has no end, and there is no claim that recovery could find"
        yield record.breach("I7", item.seq, sentence)
    elif _hands_over(ending):
        sentence = f"execution {item.execution_id} handed over, and the claim to take over is gone"
        yield record.breach("I7", ending.seq, sentence)


def _claim_knows_its_step(record: SessionRecord, claim: Claim) -> Iterator[Breach]:
    started = record.of(ev.StepStarted)
    latest_seq = started[-1].seq if started else -1
    if claim.assistant_seq != latest_seq:
        sentence = (
            f"the claim says the latest step started at seq {claim.assistant_seq}, the log says {latest_seq}"
        )
        yield record.breach("I7", latest_seq if started else None, sentence)
    in_log = open_step(record)
    if claim.assistant_message_id != in_log:
        sentence = (
            f"the claim (phase {claim.phase}) says the open step is {claim.assistant_message_id or 'none'},"
            f" the log says {in_log or 'none'}"
        )
        yield record.breach("I7", latest_seq if started else None, sentence)


def _claim_knows_its_ending(record: SessionRecord, claim: Claim) -> Iterator[Breach]:
    """Success and failure clear the claim in their own commit; the other two ends leave a marked one."""
    starts = _starts(record)
    ending = _endings(record).get(starts[-1][0].execution_id) if starts else None
    event = None if ending is None else ending.event
    seq = None if ending is None else ending.seq
    said = "has not ended" if ending is None else _ended(ending)
    if isinstance(event, ev.ExecutionSucceeded | ev.ExecutionFailed):
        sentence = f"the latest execution {said}, and {_holder(claim)} still holds the claim"
        yield record.breach("I7", seq, sentence)
    elif (claim.phase is Phase.CANCELLED) != isinstance(event, ev.ExecutionInterrupted):
        yield record.breach(
            "I7", seq, f"the claim is in phase {claim.phase}, and the latest execution {said}"
        )
    elif (claim.expires_at == 0) != isinstance(event, ev.ExecutionHandedOver):
        freed = "was handed over" if claim.expires_at == 0 else "was not handed over"
        yield record.breach("I7", seq, f"the claim {freed}, and the latest execution {said}")


# --- what waits --------------------------------------------------------------------------------------


def pending(record: SessionRecord) -> Iterator[Pending]:
    """What a node or a person still has to do for the session. None of it is a breach."""
    claim, recovery = record.claim, record.recovery
    if record.deleted:
        return
    if claim is not None:
        yield _pending(record, "claim", _awaits(claim))
    elif record.quarantined and recovery is not None:
        sentence = f"in quarantine until somebody releases or discards it: {recovery.recovery_error}"
        yield _pending(record, "quarantined", sentence)
    elif recovery is not None:
        yield _pending(record, "released", "released from quarantine, and not executed since")
    else:
        waiting = sum(1 for row in record.inputs or () if row.state == "pending" and not row.parked)
        if waiting:
            yield _pending(record, "input", f"{waiting} admitted and not promoted: a node has to pick it up")


def _pending(record: SessionRecord, kind: str, sentence: str) -> Pending:
    return Pending(session_id=record.session_id, kind=kind, sentence=sentence)


def _awaits(claim: Claim) -> str:
    if claim.expires_at == 0:
        until = "handed over"
    else:
        until = "freed at once" if claim.expires_at == 1 else f"expires at {claim.expires_at}"
    due = {
        Phase.CANCELLING: "an interrupt is to be settled",
        Phase.CANCELLED: "an interrupt is settled, and the claim is to be cleared",
    }.get(claim.phase, "its node is at work, or recovery takes it up")
    return f"{_holder(claim)} holds the claim in phase {claim.phase} ({until}): {due}"
