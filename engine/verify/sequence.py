"""I8: the log is whole. `seq` is 0…n without gaps, event ids are unique, it starts with the creation."""

from __future__ import annotations

from collections.abc import Iterator

from engine.verify.records import Breach, SessionRecord

CREATED, DELETED = "session.created", "session.deleted"


def i8(record: SessionRecord) -> Iterator[Breach]:
    """`seq` is 0…n without gaps, event ids are unique, each session starts with its creation, and nothing
    follows its deletion."""
    yield from _no_gaps(record)
    yield from _unique_ids(record)
    yield from _creation_first(record)
    yield from _deletion_last(record)


def _no_gaps(record: SessionRecord) -> Iterator[Breach]:
    before = -1
    for item in record.events:
        if item.seq != before + 1:
            follows = "begins the log" if before < 0 else f"follows seq {before}"
            yield record.breach("I8", item.seq, f"seq {item.seq} {follows}; it should be {before + 1}")
        before = item.seq
    if record.latest_seq is not None and record.latest_seq != before:
        sentence = (
            f"the log ends at seq {before}, and the session's latest seq is noted as {record.latest_seq}"
        )
        yield record.breach("I8", None, sentence)


def _unique_ids(record: SessionRecord) -> Iterator[Breach]:
    seen: dict[str, int] = {}
    for item in record.events:
        if item.event_id in seen:
            sentence = f"event id {item.event_id} is used at seq {seen[item.event_id]} and at seq {item.seq}"
            yield record.breach("I8", item.seq, sentence)
        seen.setdefault(item.event_id, item.seq)


def _creation_first(record: SessionRecord) -> Iterator[Breach]:
    if record.events and record.events[0].type != CREATED:
        first = record.events[0]
        yield record.breach("I8", first.seq, f"the log starts with {first.type}, not with {CREATED}")
    if not record.events and record.session is not None:
        yield record.breach("I8", None, "the session has a row and not a single event")
    for item in record.events[1:]:
        if item.type == CREATED:
            yield record.breach("I8", item.seq, f"the session is created again at seq {item.seq}")


def _deletion_last(record: SessionRecord) -> Iterator[Breach]:
    deleted_at: int | None = None
    for item in record.events:
        if deleted_at is not None:
            sentence = f"{item.type} at seq {item.seq} follows the session's deletion at seq {deleted_at}"
            yield record.breach("I8", item.seq, sentence)
        elif item.type == DELETED:
            deleted_at = item.seq
