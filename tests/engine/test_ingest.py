"""What a provider said: cleaned, bounded, or refused by name."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from engine import ingest, ports
from engine.errors import ProviderFault
from engine.limits import EngineConfig

CONFIG = EngineConfig(name_bytes_max=8, error_bytes_max=20, tool_output_bytes_max=10)


def test_every_field_of_every_event_is_covered() -> None:
    """A field that is added to a provider event is listed as a name, a text, a count, a flag, or free."""
    known = {*ingest.NAMES, *ingest.TEXTS, *ingest.COUNTS, *ingest.FLAGS, *ingest.FREE}
    classes = ports.ProviderEvent.__subclasses__()
    assert len(classes) >= 13
    assert {field.name for cls in classes for field in attrs.fields(cls)} == known


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (ports.ToolCall(call_id="c" * 9, name="n", input=""), "call_id takes 9 bytes, name_bytes_max is 8"),
        (ports.ToolInputStart(call_id="c", name="\x00\x00"), "ToolInputStart.name takes 12 bytes"),
        (ports.Finish(reason=None), "Finish.reason must be text, not NoneType"),  # type: ignore[arg-type]
        (ports.Finish(input_tokens=None), "Finish.input_tokens must be a whole number"),  # type: ignore[arg-type]
        (ports.Finish(output_tokens=True), "Finish.output_tokens must be a whole number"),
        (ports.Finish(cached_tokens=-1), "must be from 0"),
        (ports.Finish(reasoning_tokens=2**63), "must be from 0"),
        (ports.TextChunk(text=b"x"), "TextChunk.text must be text, not bytes"),  # type: ignore[arg-type]
        (ports.ToolCall(call_id="c", name="n", input={}), "ToolCall.input must be text"),  # type: ignore[arg-type]
        (ports.ToolCall(call_id="c", name="n", input="", hosted=None), "must be True or False"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_field_that_could_not_be_stored_is_named(item: ports.ProviderEvent, why: str) -> None:
    """The fault names the event, the field and the reason."""
    with pytest.raises(ProviderFault, match=why):
        ingest.checked(item, CONFIG)


def test_names_are_cleaned_before_anything_is_keyed_by_them() -> None:
    """Ids that would be one id in the log are one id at once."""
    for raw in ("\ud800", "\udfff", "\ufffd"):
        item = ingest.checked(ports.ToolInputEnd(call_id=raw), CONFIG)
        assert item == ports.ToolInputEnd(call_id="\ufffd")


def test_a_provider_error_is_taken_whatever_its_message_is() -> None:
    """The message of an error is for people: it never turns a failure into another one."""
    strange: Any = {"code": 429}
    item = ports.ProviderError(kind="internal", message=strange)
    assert ingest.checked(item, CONFIG) == item
    assert ingest.error_text(strange, CONFIG) == "{'code': 429}"


def test_long_error_text_is_cut_and_marked() -> None:
    """An error's message stays within its bound as stored, and shows that something is missing."""
    assert ingest.error_text("x" * 20, CONFIG) == "x" * 20
    cut = ingest.error_text("x" * 21, CONFIG)
    assert cut == "x" * 14 + ingest.CUT
    assert len(cut.encode()) == 20


def test_hosted_output_is_cut_like_a_local_one() -> None:
    """A hosted result has the bound of a tool's output; what JSON can't hold is the provider's fault."""
    assert ingest.hosted_output("c", {"a": 1}, CONFIG) == ({"a": 1}, False)
    assert ingest.hosted_output("c", "y" * 9, CONFIG) == ("y" * 8, True)
    with pytest.raises(ProviderFault, match="call 'c' can't be stored"):
        ingest.hosted_output("c", float("nan"), CONFIG)


@pytest.mark.parametrize(
    ("raw", "value"),
    [("", {}), ("{}", {}), ('{"a": [1, null]}', {"a": [1, None]}), ('{"a": 1, "a": 2}', {"a": 2})],
)
def test_arguments_are_a_json_object(raw: str, value: dict[str, Any]) -> None:
    """An object is taken as it is, empty text as an empty one, a doubled key by its last value."""
    assert ingest.parse_arguments(raw, 100) == (value, None)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("oops", "aren't valid JSON"),
        ('{"a": "\n"}', "aren't valid JSON"),
        ('{"a": "\\x"}', "aren't valid JSON"),
        ('{"a": 1,}', "aren't valid JSON"),
        ('{"a": 1}{"b": 2}', "aren't valid JSON"),
        ('{"a": NaN}', "aren't valid JSON"),
        ('{"a": 1e999}', "aren't valid JSON"),
        ('{"a": "\\ud83d"}', "aren't valid JSON"),
        ("[" * 100_000, "aren't valid JSON"),
        ("[]", "must be a JSON object"),
        ('"[]"', "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("3", "must be a JSON object"),
        ('{"a": 18446744073709551616}', "beyond 64 bits"),
        ('{"a": ' + "[" * 200 + "]" * 200 + "}", "too deeply"),
        ('{"secret": "' + "x" * 100 + '"}', "take 113 bytes"),
    ],
)
def test_malformed_arguments_are_told_apart_and_never_echoed(raw: str, why: str) -> None:
    """The model learns the kind of fault; the raw text isn't part of it."""
    arguments, problem = ingest.parse_arguments(raw, 100)
    assert arguments == {}
    assert problem is not None
    assert why in problem
    assert "secret" not in problem
    assert "oops" not in problem
