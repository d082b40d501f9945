"""Events of every class: by Hypothesis from the classes' own fields, and one fixed example of each."""

from __future__ import annotations

import types
import typing
from typing import Any, Literal, Union

import attrs
from hypothesis import strategies as st

from engine import events as ev
from engine.events import Event
from engine.records import ErrorInfo, Usage

whole = st.integers(-(2**63), 2**64 - 1)
counts = st.integers(-(2**63), 2**63 - 1)  # what a typed integer of an event may hold
texts = st.text(st.characters(codec="utf-8"), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | whole | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Values of one field's type."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        return st.sampled_from(typing.get_args(hint))
    if origin in (Union, types.UnionType):
        return st.one_of([of_type(each) for each in typing.get_args(hint)])
    if attrs.has(hint):
        return of_class(hint)
    return {str: texts, int: counts, bool: st.booleans(), type(None): st.none(), Any: json_values}[hint]


def of_class(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Instances of a frozen class."""
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{field.name: of_type(hints[field.name]) for field in attrs.fields(cls)})


DURABLE = {key: cls for key, cls in ev.REGISTRY.items() if cls.durable}
events: st.SearchStrategy[Event] = st.one_of([of_class(cls) for cls in DURABLE.values()])


def example(cls: Any) -> Event:
    """One fixed instance: every field is set, and text holds what JSON must escape."""
    hints = typing.get_type_hints(cls)
    made: Event = cls(**{field.name: _fixed(hints[field.name], field.name) for field in attrs.fields(cls)})
    return made


def _fixed(hint: Any, name: str) -> Any:
    if typing.get_origin(hint) is Literal:
        return typing.get_args(hint)[-1]
    if typing.get_origin(hint) in (Union, types.UnionType):
        return _fixed(next(each for each in typing.get_args(hint) if each is not type(None)), name)
    if hint is ErrorInfo:
        return ErrorInfo(type="transport", message="reset", retryable=True, details={"status": 502})
    if hint is Usage:
        return Usage(input_tokens=1, output_tokens=2, reasoning_tokens=3, cached_tokens=4)
    return {str: f"{name} \u00e9\n\U0001f600", int: 7, bool: True, Any: {"b": [1, None, 2.5], "a": "\u2028"}}[
        hint
    ]
