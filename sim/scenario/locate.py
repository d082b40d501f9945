"""The line of every key and list element of a TOML text, which the standard library's parser doesn't tell.

This is a scan, not a parser: it runs over text that `tomllib` has accepted, so whatever it needn't know (what
a number looks like, which escapes exist) it skips.
"""

from __future__ import annotations

import re

import attrs

from engine.shape import Path

_BLANK = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r"[^,\]}#\r\n]*")
# longest first; a closing triple may be preceded by two quotes that belong to the text
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b", '"': '"', "\\": "\\"}
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|(.))")


def find_lines(text: str) -> dict[Path, int]:
    """The line, from 1, of each table, key and list element of a valid TOML text."""
    # a table, not a function of the offset: looking a line up must not count from the start each time
    scan = _Scan(text=text)
    scan.document()
    return scan.lines


def line_of(lines: dict[Path, int], path: Path) -> int:
    """The line of `path`, or of the nearest table or list around it that has one; 1 if nothing has."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


@attrs.define
class _Scan:
    text: str
    at: int = 0
    line: int = 1
    lines: dict[Path, int] = attrs.field(factory=dict)
    elements: dict[Path, int] = attrs.field(factory=dict)  # how many [[tables]] were seen, by path

    def document(self) -> None:
        table: Path = ()
        while True:
            self._skip(_GAP)
            if self.at >= len(self.text):
                return
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        assert found is not None, f"line {self.line}: the scan lost its way in text that is valid TOML"
        self.at = found.end()
        self.line += found[0].count("\n")
        return found[0]

    def _take(self, token: str) -> bool:
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def _note(self, path: Path) -> None:
        """Remember the line of `path`; what was seen first stands."""
        self.lines.setdefault(path, self.line)

    def _header(self) -> Path:
        several = self._take("[[")
        if not several:
            self._take("[")
        *outer, last = self._key()
        path: Path = ()
        for part in outer:
            path = self._latest((*path, part))
        path = (*path, last)
        self._note(path)
        if several:
            nth = self.elements.get(path, 0)
            self.elements[path] = nth + 1
            path = (*path, nth)
            self._note(path)
        self._take("]]" if several else "]")
        return path

    def _latest(self, path: Path) -> Path:
        """`path`, or its newest element if it is a list of [[tables]]."""
        self._note(path)
        return (*path, self.elements[path] - 1) if path in self.elements else path

    def _key(self) -> list[str]:
        parts = []
        while True:
            self._skip(_BLANK)
            quoted = self.text[self.at] in "\"'"
            token = self._skip(_STRING if quoted else _BARE)
            parts.append(_unquote(token) if quoted else token)
            self._skip(_BLANK)
            if not self._take("."):
                return parts

    def _pair(self, table: Path) -> None:
        path = table
        for part in self._key():
            path = (*path, part)
            self._note(path)
        self._take("=")
        self._skip(_BLANK)
        self._value(path)

    def _value(self, path: Path) -> None:
        first = self.text[self.at]
        if first in "\"'":
            self._skip(_STRING)
        elif first == "[":
            self._list(path)
        elif first == "{":
            self._inline_table(path)
        else:
            self._skip(_PLAIN)

    def _list(self, path: Path) -> None:
        self._take("[")
        nth = 0
        while True:
            self._skip(_GAP)
            if self._take("]"):
                return
            if self._take(","):
                continue
            self._note((*path, nth))
            self._value((*path, nth))
            nth += 1

    def _inline_table(self, path: Path) -> None:
        self._take("{")
        while True:
            self._skip(_GAP)
            if self._take("}"):
                return
            if self._take(","):
                continue
            self._pair(path)


def _unquote(token: str) -> str:
    """The text of a quoted key."""
    if token.startswith("'"):
        return token[1:-1]
    return _ESCAPE.sub(_unescape, token[1:-1])


def _unescape(found: re.Match[str]) -> str:
    digits = found[1] or found[2] or found[3]
    return chr(int(digits, 16)) if digits else _ESCAPES[found[4]]
