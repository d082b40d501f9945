"""The simulated provider: what arrives of a reply whose events are mangled on their way."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ports import TextChunk, TextStart
from engine.providers.script import Emit, Move, Wait, parse_reply
from engine.providers.scripted import InTurn
from engine.records import Request
from sim.provider import Foreign, Replies, mangled
from sim.run import run_scenario
from sim.scenario import Mangle, parse_scenario

MOVES = st.lists(st.builds(Wait, st.integers(1, 9)) | st.none(), max_size=12)
"""Waits, and the places of events: None becomes a chunk that holds its number."""

MANGLES = st.lists(
    st.builds(
        Mangle, event=st.integers(1, 8), does=st.sampled_from(["drop", "repeat", "swap", "nulls", "foreign"])
    ),
    max_size=3,
    unique_by=lambda one: one.event,
)


def numbered(places: list[Wait | None]) -> list[Move]:
    """The moves, with the chunks numbered from 1."""
    moves: list[Move] = []
    for place in places:
        nth = 1 + sum(isinstance(move, Emit) for move in moves)
        moves.append(place or Emit(TextChunk(text=str(nth))))
    return moves


def seen(moves: list[Move]) -> list[str]:
    """The chunks that arrived, by their numbers; what else arrived by its kind."""
    events = [move.event for move in moves if isinstance(move, Emit)]
    return [str(event.text) if isinstance(event, TextChunk) else type(event).__name__ for event in events]


@given(MOVES)
def test_what_isnt_mangled_arrives_as_it_was_sent(places: list[Wait | None]) -> None:
    """Without a mangle, and with one for an event that never comes, nothing changes."""
    moves = numbered(places)
    assert list(mangled(moves, ())) == moves
    assert list(mangled(moves, [Mangle(event=99, does="drop")])) == moves


@given(MOVES, MANGLES)
def test_each_event_arrives_as_often_as_it_should(places: list[Wait | None], mangles: list[Mangle]) -> None:
    """A dropped event never arrives, a repeated one twice, any other once; waits all stay, in their order."""
    moves = numbered(places)
    arrived = list(mangled(moves, mangles))
    does = {one.event: one.does for one in mangles}
    count = sum(isinstance(move, Emit) for move in moves)
    wanted = [
        str({"nulls": None, "foreign": "Foreign"}.get(does.get(nth, ""), nth))
        for nth in range(1, count + 1)
        for _ in range({"drop": 0, "repeat": 2}.get(does.get(nth, ""), 1))
    ]
    assert sorted(seen(arrived)) == sorted(wanted)
    assert [one for one in arrived if isinstance(one, Wait)] == [
        one for one in moves if isinstance(one, Wait)
    ]


@pytest.mark.parametrize(
    ("does", "arrives"),
    [
        ("drop", ["1", "3"]),
        ("repeat", ["1", "2", "2", "3"]),
        ("swap", ["1", "3", "2"]),
        ("nulls", ["1", "None", "3"]),
        ("foreign", ["1", "Foreign", "3"]),
    ],
)
def test_the_second_of_three_events(does: str, arrives: list[str]) -> None:
    """What each word does to an event between two others."""
    assert seen(list(mangled(numbered([None] * 3), [Mangle(event=2, does=does)]))) == arrives  # type: ignore[arg-type]


def test_the_last_event_cant_be_swapped_away() -> None:
    """An event that is to come after the next one comes at the end, if there is no next one."""
    assert seen(list(mangled(numbered([None]), [Mangle(event=1, does="swap")]))) == ["1"]


def test_every_field_is_null() -> None:
    """An event with nulls keeps its kind, and nothing else."""
    (move,) = mangled([Emit(TextStart(id="x"))], [Mangle(event=1, does="nulls")])
    assert isinstance(move, Emit)
    assert isinstance(move.event, TextStart)
    assert attrs.asdict(move.event) == {"id": None}
    assert attrs.fields(Foreign) == ()


def test_a_mangle_strikes_the_request_that_it_names() -> None:
    """Only the named request of the named session is mangled, whoever counts."""
    plain = parse_reply([{"stall_ms": 5}, {"event": "text_start"}, {"event": "text_end"}], "reply")
    replies = Replies(InTurn((plain,)), {"ses_s": [Mangle(request=2, event=1, does="drop")]})
    asked = ["ses_s", "ses_t", "ses_s", "ses_s"]
    assert [len(list(replies(request(one)).moves())) for one in asked] == [3, 3, 2, 3]


def request(session_id: str) -> Request:
    """A request of that session."""
    names = dict.fromkeys(("message_id", "execution_id", "model", "agent", "system"), "x")
    return Request(session_id=session_id, location=None, attempt=1, messages=(), tools=(), **names)


WORLD = """
proves = "A world of one session."
[[nodes]]
name = "a"
[[sessions]]
name = "s"
mangle = [ {mangle} ]
"""


def test_a_file_may_not_mangle_in_unknown_ways() -> None:
    """The words and the places are checked when the file is read."""
    for mangle in ('{ event = 1, does = "burn" }', '{ event = 0, does = "drop" }', '{ does = "drop" }'):
        _, problems = parse_scenario(WORLD.replace("{mangle}", mangle), "one.toml")
        assert ["mangle" in str(problem) for problem in problems] == [True]


def test_a_mangled_event_is_traced_as_it_arrived() -> None:
    """The trace holds what the engine was given, so that a report shows it."""
    text = WORLD.replace("{mangle}", '{ event = 2, does = "foreign" }')
    text += '[[actions]]\ndo = "send"\nnode = "a"\nsession = "s"\ntext = "Go"\nat_s = 0.0\n'
    scenario, _ = parse_scenario(text, "one.toml")
    assert scenario is not None
    result = run_scenario(scenario, check_determinism=True)
    assert result.violations == []
    given_out = [entry.label for entry in result.entries if entry.kind == "provider"]
    assert given_out[:3] == ["open", "TextStart", "Foreign"]
