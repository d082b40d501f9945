"""Strict decoding of plain data (TOML, JSON) into frozen attrs classes, with every flaw at once.

The classes are the schema: a key is a field's name (less a trailing underscore: `as_` is `as`), a field
without a default is required, and its annotation says what it holds:

    bool, int, float, str, JSON         the plain kinds; a whole number is accepted for a float
    Literal["a", "b"]                   one of these words
    X | None                            an optional key
    tuple[X, ...]                       a list
    an attrs class                      a table
    a union of attrs classes            a table whose leading key (`leads`) tells which
    Annotated[X, rule]                  X, and what the rule asks for (`Bound`, `Among`, `Wording`)
    Annotated[X, HIDDEN]                not a key; a field `line` is filled with the table's line
    Annotated[Mapping[str, JSON], REST]  takes every key that has no field
    Annotated[X, Via(function)]         decoded by `function(decoder, raw, path)`
"""

from __future__ import annotations

import difflib
import functools
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, Protocol, TypeVar

import attrs

from engine.codec import clean_json
from engine.errors import EventError

T = TypeVar("T")

Path = tuple[str | int, ...]
"""Where something stands in the data: keys of tables and indexes of lists, outermost first."""

BAD: Any = object()
"""Stands for a value that had a flaw; the flaw itself is in the decoder's list."""

HIDDEN = object()
REST = object()


@attrs.frozen(kw_only=True)
class Flaw:
    """One thing that is wrong, where, and what would be right."""

    path: Path
    message: str
    hint: str = ""


class Rule(Protocol):
    """What a value must satisfy besides its kind."""

    def refuse(self, value: Any) -> tuple[str, str] | None:
        """None if `value` is fine, else what is wrong and a hint."""


@attrs.frozen
class Bound:
    """A number from `least` to `most`, both included."""

    least: float = -math.inf
    most: float = math.inf

    def refuse(self, value: Any) -> tuple[str, str] | None:
        if not math.isfinite(value):
            return f"must be a finite number, not {show(value)}", ""
        if value < self.least:
            return f"must be at least {self.least:g}, not {show(value)}", ""
        if value > self.most:
            return f"must be at most {self.most:g}, not {show(value)}", ""
        return None


@attrs.frozen
class Wording:
    """Text that matches `pattern` as a whole; `says` is the pattern in words."""

    pattern: str
    says: str

    def refuse(self, value: Any) -> tuple[str, str] | None:
        if re.fullmatch(self.pattern, value) is None:
            return f"must be {self.says}, not {show(value)}", ""
        return None


@attrs.frozen
class Among:
    """One of `known` words. `unfit` are words that exist but can't stand here, `because` of a reason."""

    what: str
    known: tuple[str, ...]
    unfit: tuple[str, ...] = ()
    because: str = ""

    def refuse(self, value: Any) -> tuple[str, str] | None:
        if value in self.known:
            return None
        if value in self.unfit:
            return f"{show(value)} {self.because}", ""
        return f"unknown {self.what} {show(value)}", nearest(value, self.known)


@attrs.frozen
class Via:
    """A value decoded by a function of its own."""

    function: Callable[[Decoder, Any, Path], Any]


def show(value: Any) -> str:
    """`value` as a user would write it, cut to a readable length."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names the known word nearest to `name`, or all of them if none is near."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {show(close[0])}?"
    return f"known: {', '.join(names)}" if names else "none is known"


def kind_of(value: Any) -> str:
    """What `value` is, in the words of the error messages."""
    kinds: dict[type, str] = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        list: "a list",
        tuple: "a list",
        dict: "a table",
        type(None): "nothing",
    }
    return kinds.get(type(value), f"a {type(value).__name__}")


def key_of(field_name: str) -> str:
    """The key of a field: its name without the underscore that keeps it from being a Python keyword."""
    return field_name.removesuffix("_")


def hints_of(cls: type) -> dict[str, Any]:
    """The resolved annotations of the fields of `cls`, hidden ones included, by field name."""
    return _hints_of(cls)


@functools.cache
def _hints_of(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in attrs.fields(cls)}


def keys_of(cls: type) -> list[str]:
    """The keys that a table of `cls` may have, in the order of its fields."""
    return [key_of(name) for name, hint in hints_of(cls).items() if not _marked(hint, HIDDEN, REST)]


def _marked(hint: Any, *marks: object) -> bool:
    return any(mark in marks for mark in _split(hint)[1])


def _split(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """An annotation without `Annotated`, and what `Annotated` added."""
    if typing.get_origin(hint) is Annotated:
        bare, *extras = typing.get_args(hint)
        return bare, tuple(extras)
    return hint, ()


def _no_line(path: Path) -> int:
    return 0


@attrs.define
class Decoder:
    """Decodes one document. `flaws` and `built` (every object made, with its path) grow as it goes."""

    line_of: Callable[[Path], int] = _no_line
    flaws: list[Flaw] = attrs.field(factory=list)
    built: list[tuple[Path, Any]] = attrs.field(factory=list)

    def flaw(self, path: Path, message: str, hint: str = "") -> Any:
        """Note a flaw and return `BAD`."""
        self.flaws.append(Flaw(path=path, message=message, hint=hint))
        return BAD

    def table(self, cls: type[T], raw: Any, path: Path) -> T:
        """An instance of `cls`, or `BAD` if anything in the table is wrong."""
        if not isinstance(raw, Mapping):
            return typing.cast("T", self._mismatch("a table", raw, path))
        values = self._fields(cls, raw, path)
        if any(value is BAD for value in values.values()):
            return typing.cast("T", BAD)
        try:
            made = cls(**values)
        except ValueError as exc:
            return typing.cast("T", self.flaw(path, str(exc)))
        self.built.append((path, made))
        return made

    def _fields(self, cls: type, raw: Mapping[str, Any], path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        left = dict(raw)
        takes_rest = ""
        for field in attrs.fields(cls):
            hint, key = hints_of(cls)[field.name], key_of(field.name)
            if _marked(hint, REST):
                takes_rest = field.name
            elif _marked(hint, HIDDEN):
                values |= {"line": self.line_of(path)} if key == "line" else {}
            elif key in left:
                values[field.name] = self.value(hint, left.pop(key), (*path, key))
            elif field.default is attrs.NOTHING:
                values[field.name] = self.flaw(path, f"the required key {show(key)} is missing")
        if takes_rest:
            values[takes_rest] = {key: self._json(value, (*path, key)) for key, value in left.items()}
            return values
        for key in left:
            values[f"unknown {key}"] = self.flaw(
                (*path, key), f"unknown key {show(key)}", nearest(key, keys_of(cls))
            )
        return values

    def value(self, hint: Any, raw: Any, path: Path) -> Any:
        """`raw` as what the annotation `hint` asks for, or `BAD`."""
        bare, extras = _split(hint)
        for extra in extras:
            if isinstance(extra, Via):
                return extra.function(self, raw, path)
        decoded = self._bare(bare, raw, path)
        if decoded is BAD:
            return BAD
        for rule in extras:
            refused = rule.refuse(decoded)
            if refused is not None:
                return self.flaw(path, *refused)
        return decoded

    def _bare(self, hint: Any, raw: Any, path: Path) -> Any:
        origin = typing.get_origin(hint)
        if origin is Mapping and not isinstance(raw, Mapping):
            return self._mismatch("a table", raw, path)
        if hint is Any or origin is Mapping:
            return self._json(raw, path)
        if origin in (typing.Union, types.UnionType):
            return self._union(typing.get_args(hint), raw, path)
        if origin is tuple:
            return self._list(typing.get_args(hint)[0], raw, path)
        if origin is Literal:
            return self._word(typing.get_args(hint), raw, path)
        if attrs.has(hint):
            return self.table(hint, raw, path)
        return self._plain(hint, raw, path)

    def _plain(self, hint: type, raw: Any, path: Path) -> Any:
        wanted = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[hint]
        if hint is float and type(raw) is int:
            return float(raw)
        if type(raw) is not hint:
            return self._mismatch(wanted, raw, path)
        if hint is int and not -(2**63) <= typing.cast("int", raw) < 2**63:
            return self.flaw(path, f"{show(raw)} is beyond 64 bits")
        return raw

    def _mismatch(self, wanted: str, raw: Any, path: Path, hint: str = "") -> Any:
        return self.flaw(path, f"must be {wanted}, not {kind_of(raw)} ({show(raw)})", hint)

    def _word(self, words: tuple[Any, ...], raw: Any, path: Path) -> Any:
        if not isinstance(raw, str):
            return self._mismatch(f"one of {', '.join(words)}", raw, path)
        if raw not in words:
            return self.flaw(path, f"must be one of {', '.join(words)}, not {show(raw)}", nearest(raw, words))
        return raw

    def _json(self, raw: Any, path: Path) -> Any:
        try:
            clean_json(raw)
        except EventError as exc:
            return self.flaw(path, str(exc))
        return raw

    def _list(self, element: Any, raw: Any, path: Path) -> Any:
        if not isinstance(raw, list | tuple):
            twice = isinstance(raw, dict) and len(path) == 1
            return self._mismatch("a list", raw, path, f"write [[{path[0]}]]" if twice else "")
        made = [self.value(element, item, (*path, index)) for index, item in enumerate(raw)]
        return BAD if any(item is BAD for item in made) else tuple(made)

    def _union(self, arms: tuple[Any, ...], raw: Any, path: Path) -> Any:
        if raw is None and type(None) in arms:
            return None
        real = [arm for arm in arms if arm is not type(None)]
        if len(real) == 1:
            return self.value(real[0], raw, path)
        if all(attrs.has(arm) for arm in real):
            return self.one_of(real, raw, path)
        lists = isinstance(raw, list | tuple)
        fitting = [arm for arm in real if (typing.get_origin(arm) is tuple) == lists]
        return self.value(fitting[0], raw, path)

    def one_of(self, classes: list[type], raw: Any, path: Path) -> Any:
        """The table of whichever class's leading key `raw` holds; `BAD` if that isn't exactly one."""
        if not isinstance(raw, Mapping):
            return self._mismatch("a table", raw, path)
        led = [cls for cls in classes if cls.leads in raw]  # type: ignore[attr-defined]
        # a key that leads one class may be a plain field of another: then the other one leads
        led = [cls for cls in led if not any(_holds(other, cls) for other in led if other is not cls)]
        if len(led) == 1:
            return self.table(led[0], raw, path)
        leads = [cls.leads for cls in classes]  # type: ignore[attr-defined]
        if led:
            found = " and ".join(cls.leads for cls in led)  # type: ignore[attr-defined]
            return self.flaw(path, f"{found} don't go together: exactly one of {', '.join(leads)} leads")
        if not raw:
            return self.flaw(path, f"is empty: exactly one of {', '.join(leads)} leads")
        first = next(iter(raw))
        return self.flaw((*path, first), f"none of {', '.join(leads)} is given", nearest(first, leads))


def _holds(other: type, cls: type) -> bool:
    return cls.leads in keys_of(other)  # type: ignore[attr-defined]
