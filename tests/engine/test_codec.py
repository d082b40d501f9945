"""The encoding of events: whole, canonical, strict, and readable for as long as there are old logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import codec
from engine import events as ev
from engine.errors import EventError, EventMalformed, EventTooLarge, UnknownEvent
from engine.limits import JSON_DEPTH_MAX
from engine.records import JSON, EventRow
from tests.engine.event_samples import DURABLE, events, example, json_values

GOLDEN = Path(__file__).parent / "golden" / "events_v1.json"
MAX = 1_048_576
wild_text = st.text(st.characters(codec=None) | st.sampled_from("\ud83d\ude00\ud800\udfff"), max_size=12)
RENAMED = ev.SessionRenamed(session_id="ses_1", title="t")


def encoded(event: ev.Event) -> bytes:
    """The payload, within the usual bound."""
    return codec.encode_event(event, bytes_max=MAX)


def row(data: bytes, **more: Any) -> EventRow:
    """A stored row around a payload."""
    given: dict[str, Any] = {
        "event_id": "evt_1", "session_id": "ses_1", "seq": 4, "type": "session.renamed", "version": 1,
        "created": 5, "execution_id": None, "data": data,
    }  # fmt: skip
    return EventRow(**{**given, **more})


# --- round trips -------------------------------------------------------------------------------------


@settings(max_examples=600)
@given(events)
def test_every_event_comes_back_as_it_went(event: ev.Event) -> None:
    """Whatever the fields of a class may hold is stored and read back unchanged, in the same bytes again."""
    data = encoded(event)
    back = codec.decode_event(event.type, event.version, data)
    assert back == event
    assert type(back) is type(event)
    assert encoded(back) == data


@pytest.mark.parametrize("key", DURABLE, ids=lambda key: key[0])
def test_each_class_has_a_whole_example(key: tuple[str, int]) -> None:
    """An example with every field set comes back as it went."""
    event = example(DURABLE[key])
    assert codec.decode_event(*key, encoded(event)) == event


@given(json_values)
def test_canonical_bytes_do_not_depend_on_the_order_of_keys(value: JSON) -> None:
    """Keys are sorted and there are no blanks, at every depth."""

    def reversed_keys(value: JSON) -> JSON:
        if isinstance(value, dict):
            return {key: reversed_keys(value[key]) for key in reversed(value)}
        return [reversed_keys(item) for item in value] if isinstance(value, list) else value

    data = codec.encode_json(value)
    assert codec.encode_json(reversed_keys(value)) == data
    assert json.loads(data) == value
    assert codec.decode_json(data) == value


def test_canonical_bytes_are_known() -> None:
    """The encoding is part of the format: sorted, compact, UTF-8."""
    event = ev.ToolSucceeded(
        session_id="s", assistant_message_id="m", call_id="c", output={"b": 1.0, "a": "é\n"}
    )
    assert (
        encoded(event)
        == (
            '{"assistant_message_id":"m","call_id":"c","output":{"a":"é\\n","b":1.0},'
            '"session_id":"s","truncated":false}'
        ).encode()
    )


# --- old logs ----------------------------------------------------------------------------------------


def test_old_logs_can_be_read() -> None:
    """The stored payloads of an earlier version decode to what they meant; a field added since has a default.

    When this fails after a change of a class: give the new field a default, or register a new version beside
    the old class. Never edit an entry of the file; entries for new classes are added to it.
    """
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    for entry in golden:
        event = codec.decode_event(entry["type"], entry["version"], entry["data"].encode())
        plain = msgspec.to_builtins(event)
        stored = json.loads(entry["data"])
        assert {key: plain[key] for key in stored} == stored, entry["type"]


def test_every_durable_class_is_in_the_old_log() -> None:
    """A new class needs its entry, or a later change of it would go unnoticed."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert [(entry["type"], entry["version"]) for entry in golden] == sorted(DURABLE)


def test_a_field_that_old_events_lack_needs_a_default() -> None:
    """Decoding is strict about what is missing, so the golden file notices a field without one."""
    with pytest.raises(EventMalformed, match="title"):
        codec.decode_event("session.renamed", 1, b'{"session_id":"ses_1"}')
    old = b'{"session_id":"s","assistant_message_id":"m","ordinal":0,"text":"x"}'
    assert codec.decode_event("text.ended", 1, old) == ev.TextEnded(
        session_id="s", assistant_message_id="m", ordinal=0, text="x"
    )


# --- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "version", "data", "error", "why"),
    [
        ("session.renemed", 1, b"{}", UnknownEvent, "session.renemed version 1 at here"),
        (
            "session.renamed",
            2,
            b"{}",
            UnknownEvent,
            r"version 2 at here; known versions of it: \[1\]",
        ),
        ("text.delta", 1, b"{}", UnknownEvent, "text.delta"),
        ("session.renamed", 1, b"{oops", EventMalformed, "session.renamed version 1 at here: .*isn't JSON"),
        ("session.renamed", 1, b'{"title":"\xff"}', EventMalformed, "session.renamed version 1 at here"),
        ("session.renamed", 1, b"[" * 100_000, EventMalformed, "session.renamed version 1 at here"),
        ("session.renamed", 1, b"[]", EventMalformed, "session.renamed version 1 at here"),
        ("session.renamed", 1, b'{"session_id":"s","title":3}', EventMalformed, r"\$.title"),
        ("session.renamed", 1, b'{"session_id":"s","title":null}', EventMalformed, r"\$.title"),
        (
            "session.renamed",
            1,
            b'{"session_id":"s","title":"t","x":1}',
            EventMalformed,
            r"unknown field \$.x",
        ),
        ("input.parked", 1, b'{"session_id":"s","through":true}', EventMalformed, r"\$.through"),
        ("input.parked", 1, b'{"session_id":"s","through":1.5}', EventMalformed, r"\$.through"),
        (
            "input.delivery_changed",
            1,
            b'{"session_id":"s","input_id":"i","delivery":"later"}',
            EventMalformed,
            r"\$.delivery",
        ),
        (
            "execution.failed",
            1,
            b'{"session_id":"s","error":{"type":"t","message":"m","stack":"x"}}',
            EventMalformed,
            r"unknown field \$.error.stack",
        ),
    ],
)
def test_what_does_not_fit_is_named(
    type: str, version: int, data: bytes, error: type[EventError], why: str
) -> None:
    """An unknown type or version, a missing, foreign or ill-typed field: the error says which, and where."""
    with pytest.raises(error, match=why):
        codec.decode_event(type, version, data, where="here")


def test_free_form_values_may_hold_any_fields() -> None:
    """Strictness ends where the data is somebody else's: a tool's input, an error's details."""
    data = (
        b'{"session_id":"s","input_id":"i","kind":"user","delivery":"steer",'
        b'"payload":{"anything":{"at":[{"all":1}]}}}'
    )
    event = codec.decode_event("input.admitted", 1, data)
    assert isinstance(event, ev.InputAdmitted)
    assert event.payload == {"anything": {"at": [{"all": 1}]}}


def test_an_event_past_its_bound_is_refused() -> None:
    """The error names the event, its size and the bound; one byte less fits."""
    size = len(encoded(RENAMED))
    assert codec.encode_event(RENAMED, bytes_max=size)
    with pytest.raises(
        EventTooLarge, match=f"session.renamed takes {size} bytes, event_bytes_max is {size - 1}"
    ):
        codec.encode_event(RENAMED, bytes_max=size - 1)


def test_live_events_are_never_stored() -> None:
    """Asking for it is a bug."""
    with pytest.raises(AssertionError, match="live"):
        encoded(ev.TextDelta(session_id="s", assistant_message_id="m", ordinal=0, text="x"))


# --- cleaning ----------------------------------------------------------------------------------------


@given(wild_text)
def test_clean_text_is_text_that_utf8_can_hold(text: str) -> None:
    """Pairs are joined, each lone surrogate is replaced by one character, all else stays; twice is once."""
    clean = codec.clean_text(text)
    clean.encode()
    assert codec.clean_text(clean) == clean
    assert clean == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if not any("\ud800" <= c <= "\udfff" for c in text):
        assert clean is text or clean == text


@given(wild_text)
def test_surrogates_never_poison_an_event(text: str) -> None:
    """In values and in keys, at any depth: what is stored is what `clean_text` makes of it."""
    event = ev.ToolCalled(
        session_id="s", assistant_message_id="m", call_id="c", name="n", input={text: [{"deep": text}]}
    )
    back = codec.decode_event("tool.called", 1, encoded(event))
    assert isinstance(back, ev.ToolCalled)
    clean = codec.clean_text(text)
    assert back.input == {clean: [{"deep": clean}]}


bad_values: list[Any] = [
    float("nan"), float("inf"), 2**64, -(2**63) - 1, {1: 2}, {None: 1}, object(), b"x", {1, 2},
    [[{"a": [b""]}]],
]  # fmt: skip


@pytest.mark.parametrize("value", bad_values, ids=repr)
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    """Nothing is stored in a form that would come back as something else."""
    with pytest.raises(EventError):
        codec.clean_json(value)


def nested(depth: int) -> JSON:
    """A value with that many levels."""
    value: JSON = 0
    for _ in range(depth):
        value = [value] if depth % 2 else {"k": value}
    return value


def test_depth_has_one_bound_for_all() -> None:
    """What is accepted is stored and read however deep the caller's own stack is; one level more isn't."""
    for deepest in (JSON_DEPTH_MAX, JSON_DEPTH_MAX - 1):
        data = codec.encode_json(codec.clean_json(nested(deepest)))
        assert codec.decode_json(data) == nested(deepest)
    for depth in (JSON_DEPTH_MAX + 1, 10_000, 100_000):
        with pytest.raises(EventError, match="nested too deeply"):
            codec.clean_json(nested(depth))
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(EventError, match="nested too deeply"):
        codec.clean_json(circle)


def test_cleaning_copies() -> None:
    """A value that is changed later by whoever made it doesn't change what was accepted."""
    value = {"a": [1]}
    clean = codec.clean_json(value)
    value["a"].append(2)
    assert clean == {"a": [1]}


# --- sizes -------------------------------------------------------------------------------------------


@given(st.text(max_size=20), st.integers(0, 30))
def test_text_is_cut_at_the_last_character_that_fits_as_stored(text: str, bytes_max: int) -> None:
    """The size that counts is that of the JSON, where a newline takes two bytes."""
    cut = codec.cut_text(text, bytes_max)
    assert text.startswith(cut)
    assert codec.text_bytes(cut) <= bytes_max
    assert cut == text or codec.text_bytes(text[: len(cut) + 1]) > bytes_max


@given(json_values, st.integers(2, 40))
def test_a_bounded_value_fits(value: JSON, bytes_max: int) -> None:
    """It is the value itself if that fits, else the beginning of its text, marked."""
    bounded, cut = codec.bounded_json(value, bytes_max)
    assert len(codec.encode_json(bounded)) <= bytes_max
    assert cut == (len(codec.encode_json(value)) > bytes_max)
    if not cut:
        assert bounded == value


# --- rows --------------------------------------------------------------------------------------------


def test_a_row_becomes_an_event_with_its_envelope() -> None:
    """Nothing of the envelope is lost."""
    stored = codec.decode_row(row(encoded(RENAMED), execution_id="exe", metadata=b'{"k":1}', location="here"))
    assert stored == ev.Stored(
        event_id="evt_1",
        seq=4,
        created=5,
        execution_id="exe",
        event=RENAMED,
        metadata={"k": 1},
        location="here",
    )
    assert stored.type == "session.renamed"


def test_a_row_that_lies_about_its_session_is_refused() -> None:
    """The payload names its session, too; the two must agree."""
    foreign = encoded(ev.SessionRenamed(session_id="ses_2", title="t"))
    with pytest.raises(EventMalformed, match="ses_1 seq 4 names the foreign session ses_2"):
        codec.decode_row(row(foreign))


def test_damage_names_its_place() -> None:
    """An error in a row says which session and seq, in the payload and in the metadata."""
    for damaged in (row(b"{"), row(encoded(RENAMED), metadata=b"{"), row(b"{}", type="nobody.knows")):
        with pytest.raises(EventError, match="ses_1 seq 4"):
            codec.decode_row(damaged)
