"""The text buffer: bounded, clean, and never changed by what grows from it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from engine.buffer import Buffer

characters = st.characters(codec=None)
pieces = st.lists(st.text(characters | st.sampled_from('\ud83d\ude00\x00\n"é'), max_size=6), max_size=8)


def joined(text: str) -> str:
    """The text with pairs joined and lone surrogates replaced, the long way."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def filled(bytes_max: int, texts: list[str]) -> Buffer:
    """A buffer with all `texts` added."""
    buffer = Buffer(bytes_max=bytes_max)
    for text in texts:
        buffer = buffer.add(text)
    return buffer


@given(pieces)
def test_a_buffer_with_room_holds_the_whole_text(texts: list[str]) -> None:
    """However the text is cut into pieces, pairs are joined and lone surrogates replaced."""
    buffer = filled(10_000, texts).ended()
    assert buffer.text == joined("".join(texts))
    assert not buffer.truncated
    assert buffer.bytes == len(json.dumps(buffer.text, ensure_ascii=False).encode()) - 2


@given(pieces, st.integers(1, 12))
def test_a_small_buffer_holds_the_longest_beginning_that_fits(texts: list[str], bytes_max: int) -> None:
    """The cut is at a character, within the bound as stored, and marked exactly when something is missing."""
    buffer = filled(bytes_max, texts).ended()
    whole = joined("".join(texts))
    assert whole.startswith(buffer.text)
    assert buffer.truncated == (buffer.text != whole)
    assert len(json.dumps(buffer.text, ensure_ascii=False).encode()) - 2 <= bytes_max
    if buffer.truncated:
        longer = whole[: len(buffer.text) + 1]
        assert len(json.dumps(longer, ensure_ascii=False).encode()) - 2 > bytes_max


@given(pieces, pieces, pieces)
def test_branches_share_without_disturbing_each_other(
    root: list[str], one: list[str], two: list[str]
) -> None:
    """A decision that was dropped and made again grows the buffer twice: neither sees the other's text."""
    trunk = filled(40, root)
    before = (trunk.text, trunk.ended().text)
    left = trunk
    right = trunk
    for a, b in zip([*one, ""], [*two, ""], strict=False):
        left, right = left.add(a), right.add(b)
    left, right = left.ended(), right.ended()
    steps = min(len(one), len(two)) + 1
    assert left.text == filled(40, [*root, *([*one, ""][:steps])]).ended().text
    assert right.text == filled(40, [*root, *([*two, ""][:steps])]).ended().text
    assert (trunk.text, trunk.ended().text) == before


def test_adding_nothing_is_free() -> None:
    """A million empty pieces take no room."""
    buffer = Buffer(bytes_max=10).add("a")
    assert buffer.add("") is buffer


def test_appending_does_not_copy() -> None:
    """A buffer that grows without branches keeps one list."""
    buffer = Buffer(bytes_max=100)
    grown = buffer.add("a").add("b")
    assert grown.chunks is buffer.chunks
    assert buffer.text == ""


def test_since_is_what_was_added() -> None:
    """What a listener is shown is exactly what the buffer took, a held half pair left out."""
    first = Buffer(bytes_max=6).add("ab\ud83d")
    assert first.since(Buffer(bytes_max=6)) == "ab"
    second = first.add("\ude00cdefgh")
    assert second.since(first) == "\U0001f600"
    assert second.truncated
