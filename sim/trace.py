"""What happened in a run, entry by entry, and a rolling digest over all of it.

Two runs of one tape must give equal digests. Entries hold the arguments and results of every port call and
the full bytes of every event, because a digest over the order of tasks alone stays equal in runs whose
results differ. What has no canonical bytes (a function, an object with an address) is refused.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

_FLUSH_BYTES = 1 << 16


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One thing that happened. `node` is `name.incarnation`; `fields` are what the kind of entry holds."""

    index: int
    true_ms: float  #: virtual time, which no node knows
    kind: str
    node: str
    task: str
    label: str
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        fields = " ".join(f"{name}={value!r}" for name, value in self.fields.items())
        return f"#{self.index} {self.true_ms:g} ms {self.node}/{self.task} {self.kind} {self.label} {fields}"


class Untraceable(TypeError):
    """A field has no canonical bytes: it holds a function, a foreign object or a cancellation."""


class Trace:
    """Records entries and keeps the digest of their canonical bytes.

    With `keep=False` only the digest is kept, and memory stays bounded however long the run is.
    """

    def __init__(self, *, keep: bool = True) -> None:
        self.entries: list[Entry] = []
        self.count = 0
        self.now_ns = 0  #: set by the kernel whenever virtual time moves
        self.closed = False
        self._keep = keep
        self._hash = hashlib.blake2b(digest_size=16)
        self._pending = bytearray()
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")

    def record(self, kind: str, node: str, task: str, label: str, **fields: Any) -> int:
        """Append an entry and return its index. After `close` nothing is recorded.

        Fields are numbers, text, bytes, None, attrs records, exceptions, and containers of them. A value
        that changes later must be copied by the caller. Raises `Untraceable`.
        """
        index = self.count
        if self.closed:
            return index
        entry = Entry(index, self.now_ns / 1_000_000, kind, node, task, label, fields)
        self._pending += self._encode(entry)
        if len(self._pending) > _FLUSH_BYTES:
            self._flush()
        self.count = index + 1
        if self._keep:
            self.entries.append(entry)
        return index

    def close(self) -> None:
        """Record nothing from now on: what follows is the tearing down of the world."""
        self.closed = True

    def digest(self) -> str:
        """32 hex digits over all the entries so far."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        self._hash.update(self._pending)
        self._pending.clear()

    def _encode(self, entry: Entry) -> bytes:
        for value in entry.fields.values():
            if isinstance(value, BaseException):
                break  # it may be an attrs record as well, with an address among its fields
        else:
            try:
                return self._encoder.encode(entry)
            except (TypeError, UnicodeEncodeError, OverflowError):
                pass  # the longer way knows more
        return self._encoder.encode(canonical(astuple(entry), f"{entry.kind} {entry.label}"))


def canonical(value: Any, where: str = "") -> Any:
    """`value` rebuilt from what every run writes the same way. Raises `Untraceable`, naming `where`."""
    if isinstance(value, BaseException):
        return ["error", type(value).__name__, _message(value)]
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "backslashreplace")
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -(2**63) <= value < 2**64 else ["int", str(value)]
    if isinstance(value, Mapping):
        return {canonical(key, where): canonical(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item, where) for item in value]
    if value is None or isinstance(value, bool | float | bytes | bytearray):
        return value
    if isinstance(value, set | frozenset):
        return sorted((canonical(item, where) for item in value), key=repr)
    if isinstance(value, enum.Enum):
        return canonical(value.value, where)
    if hasattr(type(value), "__attrs_attrs__"):
        fields = {field.name: getattr(value, field.name) for field in type(value).__attrs_attrs__}
        return [type(value).__name__, canonical(fields, where)]
    raise Untraceable(f"{where}: a {type(value).__name__} has no canonical bytes; trace its parts instead")


def _message(error: BaseException) -> Any:
    # The text of a cancellation holds a memory address.
    if type(error).__name__ == "Cancelled":
        return ""
    if isinstance(error, BaseExceptionGroup):
        return [[type(inner).__name__, _message(inner)] for inner in error.exceptions]
    return str(error)


def first_difference(a: Sequence[Entry], b: Sequence[Entry]) -> tuple[int, Entry | None, Entry | None] | None:
    """The first index at which two runs' entries differ, with both entries; None if they are equal.

    An entry is None where its run had already ended.
    """
    encoder = msgspec.msgpack.Encoder(order="deterministic")
    for index in range(max(len(a), len(b))):
        left = a[index] if index < len(a) else None
        right = b[index] if index < len(b) else None
        if left is None or right is None or _bytes(encoder, left) != _bytes(encoder, right):
            return index, left, right
    return None


def _bytes(encoder: msgspec.msgpack.Encoder, entry: Entry) -> bytes:
    return encoder.encode(canonical(astuple(entry)))


def explain(difference: tuple[int, Entry | None, Entry | None] | None) -> str:
    """A difference for people to read."""
    if difference is None:
        return "the runs are equal"
    index, left, right = difference
    ended = "(this run had ended)"
    return f"the runs part at entry {index}:\n  {left or ended}\n  {right or ended}"
