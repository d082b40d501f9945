"""An immutable text buffer that appends in constant time."""

from __future__ import annotations

import attrs

from engine.codec import clean_text, cut_text, text_bytes

REPLACEMENT = "\ufffd"


@attrs.frozen(kw_only=True, eq=False)
class Buffer:
    """Clean text in chunks, cut at `bytes_max` bytes of its JSON, with the cut marked.

    A surrogate pair may arrive in two halves: the first is held in `half` until the second comes, and becomes
    U+FFFD if it never does.

    Buffers that grow from one another share a list: each sees its own first `count` chunks. A second
    branch (a decision that was dropped, then made again) copies the list, so no buffer ever changes.
    """

    bytes_max: int
    chunks: list[str] = attrs.field(factory=list)
    count: int = 0
    bytes: int = 0
    half: str = ""
    truncated: bool = False

    def add(self, text: str) -> Buffer:
        """This buffer and `text` behind it."""
        if self.truncated or not text:
            return self
        text = self.half + text
        half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        whole = clean_text(text.removesuffix(half))
        fitting = cut_text(whole, self.bytes_max - self.bytes)
        truncated = fitting != whole
        return attrs.evolve(self._grown(fitting), half="" if truncated else half, truncated=truncated)

    def ended(self) -> Buffer:
        """This buffer once nothing more comes: a half pair that still waits is replaced."""
        if not self.half:
            return self
        fitting = cut_text(REPLACEMENT, self.bytes_max - self.bytes)
        return attrs.evolve(self._grown(fitting), half="", truncated=not fitting)

    def _grown(self, text: str) -> Buffer:
        if not text:
            return self
        chunks = self.chunks if len(self.chunks) == self.count else self.chunks[: self.count]
        chunks.append(text)
        return attrs.evolve(self, chunks=chunks, count=self.count + 1, bytes=self.bytes + text_bytes(text))

    def since(self, earlier: Buffer) -> str:
        """What this buffer holds beyond `earlier`, from which it grew."""
        return "".join(self.chunks[earlier.count : self.count])

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.chunks[: self.count])
