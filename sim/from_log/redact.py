"""What may leave a database: texts without what the patterns match, and names that a file can hold."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from engine.records import JSON

REDACTED = "[redacted]"
NAME_MAX = 64


@attrs.define
class Redaction:
    """Every text goes through `text`, every JSON value through `json`, every name through `name`."""

    patterns: Sequence[re.Pattern[str]] = ()
    hits: int = 0
    nulls: int = 0  #: how many nulls inside values became text, since TOML has none
    _names: dict[tuple[str, str], str] = attrs.field(factory=dict)

    def text(self, text: str) -> str:
        """`text` with each match replaced."""
        for pattern in self.patterns:
            text, count = pattern.subn(REDACTED, text)
            self.hits += count
        return text

    def json(self, value: JSON) -> JSON:
        """`value` with every text in it redacted, keys too; a null inside becomes the text `null`."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._inside(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self._inside(item) for key, item in value.items()}
        return value

    def _inside(self, value: JSON) -> JSON:
        if value is None:
            self.nulls += 1
            return "null"
        return self.json(value)

    def name(self, kind: str, name: str) -> str:
        """A name of letters, digits and `_ . -` for what is called `name`: always the same, never shared."""
        known = self._names.get((kind, name))
        if known is None:
            known = self._names[kind, name] = self.fresh(kind, name)
        return known

    def fresh(self, kind: str, name: str) -> str:
        """A name like that which nothing of its kind has yet."""
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", self.text(name)).lstrip("_.-")[: NAME_MAX - 4] or kind
        taken = {given for (of, _), given in self._names.items() if of == kind}
        found, number = plain, 1
        while found in taken:
            number += 1
            found = f"{plain}_{number}"
        self._names[kind, f"\0{found}"] = found  # taken, whatever it stands for
        return found


def has_null(value: JSON) -> bool:
    """Whether a null is somewhere in a value: TOML couldn't hold it."""
    if isinstance(value, dict):
        return any(has_null(item) for item in value.values())
    if isinstance(value, list):
        return any(has_null(item) for item in value)
    return value is None
