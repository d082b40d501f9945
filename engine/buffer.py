"""An immutable text buffer that appends in constant time."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True, eq=False)
class Buffer:
    """Text in chunks, cut at `bytes_max` UTF-8 bytes with the cut marked.

    Buffers that grow from one another share a list: each sees its own first `count` chunks. A second
    branch (a decision that was dropped, then made again) copies the list, so no buffer ever changes.
    """

    bytes_max: int
    chunks: list[str] = attrs.field(factory=list)
    count: int = 0
    bytes: int = 0
    truncated: bool = False

    def add(self, text: str) -> Buffer:
        """This buffer and `text` behind it."""
        if self.truncated or not text:
            return self
        room = self.bytes_max - self.bytes
        size = len(text.encode("utf-8", "surrogatepass"))
        cut = size > room
        if cut:
            text = text.encode("utf-8", "surrogatepass")[:room].decode("utf-8", "ignore")
        chunks = self.chunks if len(self.chunks) == self.count else self.chunks[: self.count]
        chunks.append(text)
        return attrs.evolve(
            self, chunks=chunks, count=self.count + 1, bytes=self.bytes + min(size, room), truncated=cut
        )

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.chunks[: self.count])
