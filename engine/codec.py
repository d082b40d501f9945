"""Strict, versioned encoding of events: canonical JSON (sorted keys, UTF-8, no blanks).

Decoding refuses what it doesn't know, by name: an unknown type or version, an unknown field, a value of the
wrong type. Text that UTF-8 can't hold (lone surrogates) becomes U+FFFD here, at the boundary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from engine.errors import EventError, EventMalformed, EventTooLarge, UnknownEvent
from engine.events import REGISTRY, Event, Stored
from engine.limits import JSON_DEPTH_MAX
from engine.records import JSON, EventRow

_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder()


def clean_text(text: str) -> str:
    """`text` with pairs of surrogates joined and each lone one replaced by U+FFFD."""
    if not isinstance(text, str):
        raise EventError(f"text is needed here, not {type(text).__name__} ({text!r})")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_json(value: JSON) -> JSON:
    """A copy of `value` that canonical JSON can hold.

    Raises `EventError` for what JSON can't say at all: NaN, infinities, integers beyond 64 bits, keys that
    aren't text, foreign objects, or nesting deeper than `JSON_DEPTH_MAX`.
    """
    return _clean(value, 0)


def _clean(value: JSON, depth: int) -> JSON:
    # a fixed depth: one that only the stack limits would be accepted here and refused where it is stored
    if depth > JSON_DEPTH_MAX:
        raise EventError(f"this value is nested too deeply to be stored: more than {JSON_DEPTH_MAX} levels")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise EventError("an integer is beyond 64 bits; send it as text")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise EventError(f"{value} isn't a JSON number; send None or text instead")
        return value
    if isinstance(value, list | tuple):
        return [_clean(item, depth + 1) for item in value]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise EventError(f"a JSON object's keys are text, not {type(key).__name__} ({key!r})")
        return {clean_text(key): _clean(item, depth + 1) for key, item in value.items()}
    raise EventError(f"a {type(value).__name__} isn't a JSON value; convert it before it is stored")


def encode_json(value: JSON) -> bytes:
    """Canonical JSON of a value that `clean_json` would accept."""
    return _encoder.encode(clean_json(value))


def text_bytes(text: str) -> int:
    """How many bytes clean `text` takes between the quotes of its JSON."""
    return len(_encoder.encode(text)) - 2


def cut_text(text: str, bytes_max: int) -> str:
    """The longest beginning of clean `text` that takes at most `bytes_max` bytes between JSON's quotes.

    What counts is the stored form: a newline takes two bytes there, a control character six.
    """
    text = text[:bytes_max]
    if text_bytes(text) <= bytes_max:
        return text
    fits, over = 0, len(text)
    while over - fits > 1:
        middle = (fits + over) // 2
        fits, over = (middle, over) if text_bytes(text[:middle]) <= bytes_max else (fits, middle)
    return text[:fits]


def bounded_json(value: JSON, bytes_max: int) -> tuple[JSON, bool]:
    """A copy of `value` whose canonical JSON takes at most `bytes_max` bytes, and whether it had to be cut.

    Text is cut at a character; any other value becomes the beginning of its JSON text. Raises `EventError`
    for what `clean_json` refuses.
    """
    cleaned = clean_json(value)
    encoded = _encoder.encode(cleaned)
    if len(encoded) <= bytes_max:
        return cleaned, False
    text = cleaned if isinstance(cleaned, str) else encoded.decode()
    return cut_text(text, max(0, bytes_max - 2)), True


def decode_json(data: bytes | str) -> JSON:
    """The value of a JSON text. Raises `EventMalformed`."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise EventMalformed(f"stored data isn't JSON: {exc}") from exc


def encode_event(event: Event, *, bytes_max: int) -> bytes:
    """The canonical payload of a durable event.

    Raises `EventTooLarge` past `bytes_max`, `EventError` for values that JSON can't hold, and for what could
    not be decoded again: nothing unreadable is ever committed.
    """
    assert event.durable, f"{event.type} is live: it is never stored"
    try:
        plain = msgspec.to_builtins(event)
        msgspec.convert(plain, type(event))
        data = encode_json(plain)
    except (TypeError, RecursionError, msgspec.ValidationError) as exc:
        raise EventError(f"{event.type} can't be stored: {exc}") from exc
    if len(data) > bytes_max:
        raise EventTooLarge(f"{event.type} takes {len(data)} bytes, event_bytes_max is {bytes_max}")
    return data


def decode_event(type: str, version: int, data: bytes, *, where: str = "") -> Event:
    """The event in a stored payload. Raises `UnknownEvent` or `EventMalformed`, naming `where`."""
    cls = REGISTRY.get((type, version))
    at = f" at {where}" if where else ""
    if cls is None or not cls.durable:
        known = sorted(v for t, v in REGISTRY if t == type)
        hint = f"; known versions of it: {known}" if known else ""
        raise UnknownEvent(f"unknown event {type} version {version}{at}{hint}")
    try:
        raw = decode_json(data)
        decoded = msgspec.convert(raw, cls)
    except (EventMalformed, msgspec.ValidationError) as exc:
        raise EventMalformed(f"{type} version {version}{at}: {exc}") from exc
    for extra in _unknown_keys(raw, msgspec.to_builtins(decoded), "$"):
        raise EventMalformed(f"{type} version {version}{at}: unknown field {extra}")
    return decoded


def _unknown_keys(raw: JSON, known: JSON, path: str) -> Iterator[str]:
    """Fields of `raw` that decoding dropped. Free-form values come back whole, so they never show here."""
    if not (isinstance(raw, dict) and isinstance(known, dict)):
        return
    for key, value in raw.items():
        if key not in known:
            yield f"{path}.{key}"
        elif isinstance(value, dict):
            yield from _unknown_keys(value, known[key], f"{path}.{key}")


def decode_row(row: EventRow) -> Stored:
    """A stored row as an event with its envelope. Raises `UnknownEvent` or `EventMalformed`."""
    where = f"{row.session_id} seq {row.seq}"
    event = decode_event(row.type, row.version, row.data, where=where)
    if event.session_id != row.session_id:
        raise EventMalformed(f"{row.type} at {where} names the foreign session {event.session_id}")
    return Stored(
        event_id=row.event_id,
        seq=row.seq,
        created=row.created,
        execution_id=row.execution_id,
        event=event,
        metadata=_decode_metadata(row, where),
        location=row.location,
    )


def _decode_metadata(row: EventRow, where: str) -> JSON:
    if row.metadata is None:
        return None
    try:
        return decode_json(row.metadata)
    except EventMalformed as exc:
        raise EventMalformed(f"the metadata of {row.type} at {where}: {exc}") from exc
