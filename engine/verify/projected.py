"""I10: the tables `session` and `input` say what the log says, by a second, naive fold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from engine import events as ev
from engine.verify.records import Breach, SessionRecord

Fields = dict[str, Any]

STATUS = {
    "execution.started": "running",
    "execution.succeeded": "idle",
    "execution.failed": "failed",
    "execution.interrupted": "interrupted",
    "execution.handed_over": "handed_over",
}


@attrs.define(kw_only=True)
class _Row:
    """A row as the log has it: its fields, and for each the seq of the event that last set it."""

    fields: Fields
    set_at: dict[str, int]

    def put(self, seq: int, **fields: Any) -> None:
        self.fields.update(fields)
        self.set_at.update(dict.fromkeys(fields, seq))


def i10(record: SessionRecord) -> Iterator[Breach]:
    """The rows of `session` and `input` equal the fold of the log. An unreadable event may have changed
    either, so a log that has one isn't judged."""
    if record.hides():
        return
    yield from _compare_session(record)
    if record.inputs is not None:
        yield from _compare_inputs(record)


# --- the session's row -------------------------------------------------------------------------------


def _compare_session(record: SessionRecord) -> Iterator[Breach]:
    expected = _fold_session(record)
    if expected is None:
        return  # a log without its creation is I8's to tell
    if record.session is None:
        yield record.breach("I10", expected.set_at["created"], "the log creates the session; it has no row")
        return
    yield from _differences(record, "the session's row", expected, attrs.asdict(record.session))


def _fold_session(record: SessionRecord) -> _Row | None:
    row: _Row | None = None
    for item in record.stored:
        event = item.event
        if isinstance(event, ev.SessionCreated):
            row = _Row(fields={}, set_at={})
            row.put(
                item.seq,
                session_id=record.session_id,
                title=event.title,
                location=event.location,
                model=event.model,
                agent=event.agent,
                system=event.system,
                created=item.created,
                status="idle",
                deleted=False,
            )
        elif row is None:
            continue
        elif isinstance(event, ev.SessionRenamed):
            row.put(item.seq, title=event.title)
        elif isinstance(event, ev.SessionDeletedEvent):
            row.put(item.seq, deleted=True)
        elif item.type in STATUS:
            row.put(item.seq, status=STATUS[item.type])
    return row


# --- the rows of the inbox ---------------------------------------------------------------------------


def _compare_inputs(record: SessionRecord) -> Iterator[Breach]:
    expected = _fold_inputs(record)
    found = {row.input_id: attrs.asdict(row, recurse=False) for row in record.inputs or ()}
    for input_id, row in expected.items():
        if input_id not in found:
            sentence = f"input {input_id} is admitted in the log, and has no row"
            yield record.breach("I10", row.set_at["input_id"], sentence)
        else:
            yield from _differences(record, f"the row of input {input_id}", row, found[input_id])
    for input_id in found:
        if input_id not in expected:
            yield record.breach("I10", None, f"input {input_id} has a row, and the log never admitted it")


def _fold_inputs(record: SessionRecord) -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    for item in record.stored:
        event, seq = item.event, item.seq
        match event:
            case ev.InputAdmitted():
                rows[event.input_id] = _Row(fields={}, set_at={})
                rows[event.input_id].put(
                    seq,
                    input_id=event.input_id,
                    session_id=record.session_id,
                    kind=event.kind,
                    delivery=event.delivery,
                    payload=event.payload,
                    admitted_seq=seq,
                    state="pending",
                    parked=False,
                )
            case ev.InputDeliveryChanged(input_id=str() as input_id) if input_id in rows:
                rows[input_id].put(seq, delivery=event.delivery)
            case ev.InputCancelled(input_id=str() as input_id) if input_id in rows:
                rows[input_id].put(seq, state="cancelled", parked=False)
            case ev.InputPromoted(input_id=str() as input_id) if input_id in rows:
                rows[input_id].put(seq, state="promoted", parked=False)
            case ev.InputParked(through=through) | ev.ExecutionInterrupted(parked_through=through):
                _set_parked(rows, seq, through, parked=True)
            case ev.ExecutionFailed(parked_through=int() as through):
                _set_parked(rows, seq, through, parked=True)
            case ev.InputResumed(through=through):
                _set_parked(rows, seq, through, parked=False)
    return rows


def _set_parked(rows: dict[str, _Row], seq: int, through: int, *, parked: bool) -> None:
    for row in rows.values():
        if row.fields["state"] == "pending" and row.fields["admitted_seq"] <= through:
            row.put(seq, parked=parked)


def _differences(record: SessionRecord, name: str, expected: _Row, found: Fields) -> Iterator[Breach]:
    for field, value in expected.fields.items():
        if found[field] != value:
            sentence = f"{name} says {field} {found[field]!r}, and the log says {value!r}"
            yield record.breach("I10", expected.set_at[field], sentence)
