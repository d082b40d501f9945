"""What a provider said, made fit to be stored, or refused as its fault.

A provider's event is data from outside. Whatever of it reaches the log must fit there: text that UTF-8 can
hold, counts that are counts, ids that stay distinct once stored. Refusing it here fails one step with a clear
error; letting it through would fail the commit, and with it the session.
"""

from __future__ import annotations

import attrs

from engine.codec import bounded_json, clean_json, clean_text, cut_text, decode_json, encode_json, text_bytes
from engine.errors import EventError, ProviderFault
from engine.limits import EngineConfig
from engine.ports import ProviderEvent
from engine.records import JSON

NAMES = ("call_id", "name", "reason", "kind")
"""Fields that are stored as they are, so they are cleaned and may not be long."""

TEXTS = ("id", "text", "input")
COUNTS = ("input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens")
FLAGS = ("hosted",)
FREE = ("output", "error", "message", "retry_after_s")
"""Fields that are made fit where they are used, whatever they hold."""

COUNT_MAX = 2**63 - 1
CUT = " […]"


def checked(item: ProviderEvent, config: EngineConfig) -> ProviderEvent:
    """`item` with its names cleaned. Raises `ProviderFault` for a field that couldn't be stored."""
    clean: dict[str, str] = {}
    for field in attrs.fields(type(item)):
        value, what = getattr(item, field.name), f"{type(item).__name__}.{field.name}"
        if field.name in NAMES:
            clean[field.name] = _name(value, what, config)
        elif field.name in TEXTS and not isinstance(value, str):
            raise ProviderFault(f"{what} must be text, not {type(value).__name__}")
        elif field.name in COUNTS:
            _check_count(value, what)
        elif field.name in FLAGS and not isinstance(value, bool):
            raise ProviderFault(f"{what} must be True or False, not {type(value).__name__}")
    return attrs.evolve(item, **clean)


def _name(value: object, what: str, config: EngineConfig) -> str:
    if not isinstance(value, str):
        raise ProviderFault(f"{what} must be text, not {type(value).__name__}")
    clean = clean_text(value)
    size = text_bytes(clean)
    if size > config.name_bytes_max:
        raise ProviderFault(f"{what} takes {size} bytes, name_bytes_max is {config.name_bytes_max}")
    return clean


def _check_count(value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ProviderFault(f"{what} must be a whole number, not {type(value).__name__}")
    if not 0 <= value <= COUNT_MAX:
        raise ProviderFault(f"{what} must be from 0 to 2^63 - 1")


def error_text(message: object, config: EngineConfig) -> str:
    """An error's message as the log may hold it; a long one is cut, with the cut marked."""
    clean = clean_text(str(message))
    fitting = cut_text(clean, config.error_bytes_max)
    if fitting == clean:
        return clean
    return cut_text(fitting, max(0, config.error_bytes_max - text_bytes(CUT))) + CUT


def hosted_output(call_id: str, output: JSON, config: EngineConfig) -> tuple[JSON, bool]:
    """A hosted call's output, cut to the bound of local ones, and whether it was. Raises `ProviderFault`."""
    try:
        return bounded_json(output, config.tool_output_bytes_max)
    except EventError as exc:
        raise ProviderFault(f"the result of call {call_id!r} can't be stored: {exc}") from exc


def parse_arguments(raw: str, bytes_max: int) -> tuple[dict[str, JSON], str | None]:
    """A call's arguments as a JSON object, and what was wrong with them.

    The raw text is never echoed to the model: a fixed wording names the kind of fault.
    """
    try:
        value = decode_json(clean_text(raw) or "{}")
    except EventError:
        return {}, "the arguments aren't valid JSON"
    if not isinstance(value, dict):
        return {}, "the arguments must be a JSON object"
    try:
        arguments = clean_json(value)
        size = len(encode_json(arguments))
    except EventError:
        return {}, "the arguments hold numbers beyond 64 bits, or are nested too deeply"
    if size > bytes_max:
        return {}, f"the arguments take {size} bytes, and at most {bytes_max} are allowed"
    return arguments, None
