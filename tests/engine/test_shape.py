"""Strict decoding of plain data into frozen classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.records import JSON
from engine.shape import BAD, HIDDEN, REST, Among, Bound, Decoder, Flaw, Via, Wording, keys_of, nearest


@attrs.frozen(kw_only=True)
class Leaf:
    size: Annotated[int, Bound(1, 9)]


@attrs.frozen(kw_only=True)
class Round:
    leads: ClassVar[str] = "radius"
    radius: float


@attrs.frozen(kw_only=True)
class Square:
    leads: ClassVar[str] = "side"
    side: float
    radius: float = 0.0  # of its corners: a plain field here, although it leads `Round`


@attrs.frozen(kw_only=True)
class Tree:
    name: Annotated[str, Wording("[a-z]+", "small letters")]
    is_: Literal["young", "old"] = "young"
    kind: Annotated[str, Among("kind", ("oak", "elm"), ("moss",), "is no tree")] = "oak"
    tall: bool = False
    weight: float | None = None
    leaves: tuple[Leaf, ...] = ()
    shape: Round | Square | None = None
    notes: JSON = None
    twice: Annotated[str, Via(lambda decoder, raw, path: raw * 2)] = ""
    words: str | tuple[str, ...] = ""
    line: Annotated[int, HIDDEN] = 0


@attrs.frozen(kw_only=True)
class Open:
    known: int = 0
    rest: Annotated[Mapping[str, JSON], REST] = attrs.field(factory=dict)


def decode(raw: Any, cls: type = Tree) -> tuple[Any, list[Flaw]]:
    decoder = Decoder(line_of=lambda path: 7)
    return decoder.table(cls, raw, ()), decoder.flaws


def test_good_data_becomes_the_class_it_describes() -> None:
    """Each kind of annotation is decoded; a last underscore is no part of a key; the line is filled in."""
    raw = {
        "name": "ash",
        "is": "old",
        "kind": "elm",
        "tall": True,
        "weight": 3,
        "leaves": [{"size": 1}, {"size": 9}],
        "shape": {"side": 2.0, "radius": 1},
        "notes": {"a": [1, None]},
        "twice": "ab",
        "words": ["x", "y"],
    }
    made, flaws = decode(raw)
    assert flaws == []
    assert made == Tree(
        name="ash",
        is_="old",
        kind="elm",
        tall=True,
        weight=3.0,
        leaves=(Leaf(size=1), Leaf(size=9)),
        shape=Square(side=2.0, radius=1.0),
        notes={"a": [1, None]},
        twice="abab",
        words=("x", "y"),
        line=7,
    )
    assert isinstance(made.weight, float)


@pytest.mark.parametrize(
    ("raw", "path", "says"),
    [
        ({}, (), 'the required key "name" is missing'),
        ({"name": "ash", "nam": 1}, ("nam",), 'unknown key "nam"'),
        ({"name": "ash", "line": 1}, ("line",), 'unknown key "line"'),
        ({"name": "Ash"}, ("name",), 'must be small letters, not "Ash"'),
        ({"name": 3}, ("name",), "must be text, not a whole number (3)"),
        ({"name": "ash", "is": "odl"}, ("is",), 'must be one of young, old, not "odl"'),
        ({"name": "ash", "is": 1}, ("is",), "must be one of young, old, not a whole number (1)"),
        ({"name": "ash", "kind": "okk"}, ("kind",), 'unknown kind "okk"'),
        ({"name": "ash", "kind": "moss"}, ("kind",), '"moss" is no tree'),
        ({"name": "ash", "tall": 1}, ("tall",), "must be true or false, not a whole number (1)"),
        ({"name": "ash", "weight": True}, ("weight",), "must be a number, not true or false (true)"),
        ({"name": "ash", "leaves": {}}, ("leaves",), "must be a list, not a table ({})"),
        ({"name": "ash", "leaves": [3]}, ("leaves", 0), "must be a table, not a whole number (3)"),
        ({"name": "ash", "leaves": [{"size": 0}]}, ("leaves", 0, "size"), "must be at least 1, not 0"),
        ({"name": "ash", "leaves": [{"size": 10}]}, ("leaves", 0, "size"), "must be at most 9, not 10"),
        ({"name": "ash", "leaves": [{"size": 2**70}]}, ("leaves", 0, "size"), "beyond 64 bits"),
        ({"name": "ash", "leaves": [{"size": True}]}, ("leaves", 0, "size"), "must be a whole number"),
        ({"name": "ash", "shape": {}}, ("shape",), "is empty: exactly one of radius, side leads"),
        ({"name": "ash", "shape": {"sid": 1}}, ("shape", "sid"), "none of radius, side is given"),
        ({"name": "ash", "shape": 1}, ("shape",), "must be a table, not a whole number (1)"),
        ({"name": "ash", "notes": {"x": {1, 2}}}, ("notes",), "a set isn't a JSON value"),
        ({"name": "ash", "notes": float("nan")}, ("notes",), "isn't a JSON number"),
        ({"name": "ash", "words": [1]}, ("words", 0), "must be text, not a whole number (1)"),
        ({"name": "ash", "words": 1}, ("words",), "must be text, not a whole number (1)"),
        ([], (), "must be a table, not a list ([])"),
    ],
)
def test_a_flaw_is_told_with_its_place(raw: Any, path: tuple[str | int, ...], says: str) -> None:
    """What is wrong comes back as one flaw with its path, and nothing is built."""
    made, flaws = decode(raw)
    assert made is BAD
    assert [flaw.path for flaw in flaws] == [path]
    assert says in flaws[0].message


def test_all_flaws_are_told_at_once() -> None:
    """Three broken keys give three flaws, not the first one only."""
    _, flaws = decode({"nam": 1, "tall": 2, "leaves": [{"size": 0}, {"size": 5}, {"size": "x"}]})
    assert [flaw.path for flaw in flaws] == [
        (),
        ("tall",),
        ("leaves", 0, "size"),
        ("leaves", 2, "size"),
        ("nam",),
    ]


def test_two_leading_keys_do_not_go_together() -> None:
    """A table that two classes could lead is refused by name, when neither key is a field of the other."""

    @attrs.frozen(kw_only=True)
    class Other:
        leads: ClassVar[str] = "edge"
        edge: int

    decoder = Decoder()
    assert decoder.one_of([Round, Other], {"radius": 1, "edge": 1}, ("x",)) is BAD
    assert decoder.flaws == [
        Flaw(path=("x",), message="radius and edge don't go together: exactly one of radius, edge leads")
    ]


def test_what_has_no_field_goes_to_the_rest() -> None:
    """A class with a rest takes unknown keys there, if JSON can hold their values."""
    made, flaws = decode({"known": 1, "more": {"a": 1}}, Open)
    assert (made, flaws) == (Open(known=1, rest={"more": {"a": 1}}), [])
    assert decode({"more": {1}}, Open)[1][0].path == ("more",)


def test_keys_leave_out_what_is_no_key() -> None:
    """Hidden fields and the rest are not keys."""
    assert keys_of(Open) == ["known"]
    assert "line" not in keys_of(Tree)
    assert "is" in keys_of(Tree)


def test_every_object_built_is_listed_with_its_path() -> None:
    """Also where the table around it is broken, so that later checks can go on."""
    decoder = Decoder()
    decoder.table(Tree, {"leaves": [{"size": 1}, {"size": 0}, {"size": 2}]}, ())
    assert decoder.built == [(("leaves", 0), Leaf(size=1)), (("leaves", 2), Leaf(size=2))]


def test_the_nearest_word_is_named() -> None:
    """A near miss names its neighbour; a far one lists what is known."""
    assert nearest("nodde", ["node", "session"]) == 'did you mean "node"?'
    assert nearest("zzz", ["node", "session"]) == "known: node, session"
    assert nearest("zzz", []) == "none is known"


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "is", "leaves", "size", "shape", "side", "x"]), inner)
    ),
    max_leaves=12,
)


@given(raw=PLAIN)
def test_any_data_is_built_or_has_flaws(raw: Any) -> None:
    """Whatever comes in, decoding ends with an object and no flaw, or with flaws and no object."""
    made, flaws = decode(raw)
    assert (made is BAD) == bool(flaws)
