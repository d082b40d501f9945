"""I11: no input is lost, promoted twice, or promoted while it waits for a person."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from engine import events as ev
from engine.events import Stored
from engine.verify.records import Breach, SessionRecord


@attrs.define(kw_only=True)
class _Waiting:
    """What the log has said of one input so far."""

    admitted: Stored
    over: Stored | None = None  #: its promotion or cancellation
    parked: Stored | None = None  #: what parked it, until it is resumed


def i11(record: SessionRecord) -> Iterator[Breach]:
    """Every admitted input is promoted once, cancelled once, or pending; what was parked isn't promoted
    before an `input.resumed`; a deletion leaves nothing pending."""
    inbox: dict[str, _Waiting] = {}
    for item in record.stored:
        event = item.event
        match event:
            case ev.InputAdmitted():
                yield from _admit(record, inbox, item, event.input_id)
            case ev.InputPromoted() | ev.InputCancelled() | ev.InputDeliveryChanged():
                yield from _touch(record, inbox, item, event.input_id)
            case ev.InputParked(through=through) | ev.ExecutionInterrupted(parked_through=through):
                _park(inbox, item, through)
            case ev.ExecutionFailed(parked_through=int() as through):
                _park(inbox, item, through)
            case ev.InputResumed(through=through):
                _resume(inbox, through)
            case ev.SessionDeletedEvent():
                yield from _nothing_waits(record, inbox, item)


def _admit(
    record: SessionRecord, inbox: dict[str, _Waiting], item: Stored, input_id: str
) -> Iterator[Breach]:
    if input_id in inbox:
        first = inbox[input_id].admitted.seq
        sentence = f"input {input_id} is admitted twice: at seq {first} and at seq {item.seq}"
        yield record.breach("I11", item.seq, sentence)
    else:
        inbox[input_id] = _Waiting(admitted=item)


def _touch(
    record: SessionRecord, inbox: dict[str, _Waiting], item: Stored, input_id: str
) -> Iterator[Breach]:
    known = inbox.get(input_id)
    if known is None:
        if not record.hides(before=item.seq):
            sentence = f"input {input_id} has {item.type} at seq {item.seq}, and had not been admitted"
            yield record.breach("I11", item.seq, sentence)
        return
    if known.over is not None:
        sentence = (
            f"input {input_id} was over with {known.over.type} at seq {known.over.seq},"
            f" and has {item.type} at seq {item.seq}"
        )
        yield record.breach("I11", item.seq, sentence)
        return
    if isinstance(item.event, ev.InputDeliveryChanged):
        return
    known.over = item
    if isinstance(item.event, ev.InputPromoted) and known.parked is not None:
        yield from _promoted_while_parked(record, item, known.parked, input_id)


def _promoted_while_parked(
    record: SessionRecord, item: Stored, parked: Stored, input_id: str
) -> Iterator[Breach]:
    if not record.hides(after=parked.seq, before=item.seq):
        sentence = (
            f"input {input_id} is promoted at seq {item.seq}, and {parked.type} at seq {parked.seq}"
            f" had parked it"
        )
        yield record.breach("I11", item.seq, sentence)


def _park(inbox: dict[str, _Waiting], item: Stored, through: int) -> None:
    for known in inbox.values():
        if known.over is None and known.admitted.seq <= through:
            known.parked = known.parked or item


def _resume(inbox: dict[str, _Waiting], through: int) -> None:
    for known in inbox.values():
        if known.admitted.seq <= through:
            known.parked = None


def _nothing_waits(record: SessionRecord, inbox: dict[str, _Waiting], item: Stored) -> Iterator[Breach]:
    for input_id, known in inbox.items():
        if known.over is None and not record.hides(after=known.admitted.seq, before=item.seq):
            sentence = f"the session is deleted at seq {item.seq}, and input {input_id} is still pending"
            yield record.breach("I11", item.seq, sentence)
