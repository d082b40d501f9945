"""The script language: lines, replies, and reading them from plain data."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import ports
from engine.providers.lines import ABOUT_REQUEST
from engine.providers.script import (
    LINES,
    Break,
    Call,
    Cut,
    Emit,
    Error,
    Event,
    Finish,
    Move,
    OnClose,
    Reasoning,
    Reply,
    Result,
    ScriptError,
    SlowClose,
    Stall,
    Text,
    Unreachable,
    Wait,
    parse_reply,
    parse_script,
    reply,
    says,
)


def events(of: Reply) -> list[ports.ProviderEvent]:
    return [move.event for move in of.moves() if isinstance(move, Emit)]


def texts(of: Reply) -> list[str]:
    return [
        event.text
        for event in events(of)
        if isinstance(event, ports.TextChunk | ports.ReasoningChunk | ports.ToolInputChunk)
    ]


def played(*items: dict[str, Any]) -> list[Move]:
    return list(parse_reply(items, "r").moves())


def test_a_text_is_played_from_start_to_end() -> None:
    """One text line is a start, its chunks and an end, with the delays it asks for."""
    assert played({"text": "Hello there", "chunks": 2, "delay_ms": 10, "every_ms": 5}) == [
        Wait(10),
        Emit(ports.TextStart(id="text")),
        Wait(5),
        Emit(ports.TextChunk(id="text", text="Hello")),
        Wait(5),
        Emit(ports.TextChunk(id="text", text=" there")),
        Emit(ports.TextEnd(id="text")),
    ]


def test_reasoning_is_played_like_text() -> None:
    """A reasoning line has its own three events."""
    assert events(parse_reply([{"reasoning": "hm", "id": "r"}], "r")) == [
        ports.ReasoningStart(id="r"),
        ports.ReasoningChunk(id="r", text="hm"),
        ports.ReasoningEnd(id="r"),
    ]


def test_a_second_text_is_another_fragment() -> None:
    """Texts without an id of their own never share one, so that two in a row are legal."""
    moves = reply(Text(text="a"), Reasoning(reasoning="b"), Text(text="c"), Reasoning(reasoning="d"))
    starts = [e.id for e in events(moves) if isinstance(e, ports.TextStart | ports.ReasoningStart)]
    assert starts == ["text", "reasoning", "text-2", "reasoning-2"]


@given(text=st.text(max_size=30), chunks=st.integers(1, 40), repeat=st.integers(1, 3))
def test_chunks_are_as_many_as_asked_and_make_up_the_text(text: str, chunks: int, repeat: int) -> None:
    """Cutting loses and adds nothing, whatever the number of chunks."""
    pieces = texts(reply(Text(text=text, chunks=chunks, repeat=repeat)))
    assert len(pieces) == chunks
    assert "".join(pieces) == text * repeat


def test_a_list_of_texts_is_its_own_chunks() -> None:
    """A list says exactly where the cuts are."""
    assert texts(parse_reply([{"text": ["He", "", "llo"], "repeat": 2}], "r")) == ["He", "", "llo"] * 2


def test_a_call_carries_its_arguments_as_json_text() -> None:
    """`input` is sent as canonical JSON, an empty object if nothing is given; `input_text` word for word."""
    call: dict[str, Any] = {"call": "c1", "tool": "lookup"}
    given: list[dict[str, Any]] = [{"input": {"q": "x", "a": 1}}, {}, {"input_text": '{"q": '}, {"input": []}]
    inputs = [events(parse_reply([call | more], "r"))[0] for more in given]
    assert [getattr(event, "input", None) for event in inputs] == ['{"a":1,"q":"x"}', "{}", '{"q": ', "[]"]


def test_a_streamed_call_sends_its_input_as_fragments_first() -> None:
    """The fragments make up the text that the call then carries."""
    item = {"call": "c1", "tool": "t", "input": {"q": "x"}, "streamed": True, "chunks": 3, "every_ms": 1}
    said = events(parse_reply([item], "r"))
    assert said[0] == ports.ToolInputStart(call_id="c1", name="t")
    assert said[-2:] == [
        ports.ToolInputEnd(call_id="c1"),
        ports.ToolCall(call_id="c1", name="t", input='{"q":"x"}'),
    ]
    assert "".join(texts(parse_reply([item], "r"))) == '{"q":"x"}'
    assert len(said) == 6


def test_the_other_lines_say_one_thing_each() -> None:
    """Results, finish, errors, silence and a cut become the move they name."""
    assert played(
        {"call": "h", "tool": "web", "hosted": True},
        {"result": "h", "output": [1]},
        {"result": "h", "failed": "no"},
        {
            "finish": "length",
            "input_tokens": 1,
            "output_tokens": 2,
            "reasoning_tokens": 3,
            "cached_tokens": 4,
        },
        {"error": "rate_limit", "message": "slow", "retry_after_s": -5},
        {"stall_ms": 70},
        {"cut": "gone"},
    ) == [
        Emit(ports.ToolCall(call_id="h", name="web", input="{}", hosted=True)),
        Emit(ports.ToolResult(call_id="h", output=[1])),
        Emit(ports.ToolResult(call_id="h", error="no")),
        Emit(
            ports.Finish(
                reason="length", input_tokens=1, output_tokens=2, reasoning_tokens=3, cached_tokens=4
            )
        ),
        Emit(ports.ProviderError(kind="rate_limit", message="slow", retry_after_s=-5.0)),
        Wait(70),
        Break("gone"),
    ]


def test_single_events_may_come_in_any_order() -> None:
    """A chunk before its start, or an end twice, can be said; each event takes the keys that it has."""
    assert events(
        parse_reply(
            [
                {"event": "text_chunk", "text": "late"},
                {"event": "text_end", "id": "x"},
                {"event": "text_start"},
                {"event": "reasoning_chunk", "id": "r", "text": "b"},
                {"event": "tool_input_start", "call": "c", "name": "n"},
                {"event": "tool_input_chunk", "call": "c", "text": "{"},
                {"event": "tool_input_end", "call": "c"},
            ],
            "r",
        )
    ) == [
        ports.TextChunk(text="late", id="text"),
        ports.TextEnd(id="x"),
        ports.TextStart(id="text"),
        ports.ReasoningChunk(id="r", text="b"),
        ports.ToolInputStart(call_id="c", name="n"),
        ports.ToolInputChunk(call_id="c", text="{"),
        ports.ToolInputEnd(call_id="c"),
    ]


def test_lines_about_the_request_make_no_moves() -> None:
    """How the request closes is told beside the stream, wherever the line stands."""
    made = parse_reply([{"close_ms": 9}, {"text": ""}, {"on_close": "no", "joins": True}], "r")
    assert made.close_ms == 9
    assert made.on_close == OnClose(on_close="no", joins=True)
    assert made.unreachable is None
    assert texts(made) == [""]
    lost = parse_reply([{"unreachable": "no route", "delay_ms": 3}], "r")
    assert lost.unreachable == Unreachable(unreachable="no route", delay_ms=3)
    assert (lost.close_ms, lost.on_close, list(lost.moves())) == (0, None, [])


def test_escapes_say_what_toml_cannot_hold() -> None:
    """With `escapes`, each text of the line is read as JSON text: half a pair stays half a pair."""
    item = {"text": [r"\ud83d", r'\ude00 "and\n\"so"'], "escapes": True}
    assert texts(parse_reply([item], "r")) == ["\ud83d", '\ude00 "and\n"so"']
    assert texts(parse_reply([item | {"escapes": False}], "r"))[0] == r"\ud83d"
    call = {"call": r"c\u0031", "tool": r"\ud800", "input": {"q": [r"\u0041", 1]}, "escapes": True}
    assert events(parse_reply([call], "r")) == [
        ports.ToolCall(call_id="c1", name="\ud800", input='{"q":["A",1]}')
    ]


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ({"txt": "x"}, "r[0].txt: none of text,"),
        ({}, "r[0]: is empty"),
        (3, "r[0]: must be a table"),
        ({"text": "x", "finish": "stop"}, "r[0]: text and finish don't go together"),
        ({"text": "x", "chunk": 2}, 'r[0].chunk: unknown key "chunk" (did you mean "chunks"?)'),
        ({"text": 3}, "r[0].text: must be text, not a whole number"),
        ({"text": [3]}, "r[0].text[0]: must be text"),
        ({"text": "x", "chunks": 0}, "r[0].chunks: must be at least 1"),
        ({"text": ["x"], "chunks": 2}, "r[0]: chunks splits one text"),
        ({"text": "x", "delay_ms": -1}, "r[0].delay_ms: must be at least 0"),
        ({"text": "x", "delay_ms": 1.5}, "r[0].delay_ms: must be a whole number"),
        ({"call": "c"}, 'r[0]: the required key "tool" is missing'),
        ({"call": "c", "tool": "t", "input": {1: 2}}, "r[0].input: a JSON object's keys are text"),
        ({"call": "c", "tool": "t", "input": {}, "input_text": ""}, "r[0]: input and input_text"),
        ({"call": "c", "tool": "t", "chunks": 2}, "r[0]: chunks and every_ms need streamed"),
        ({"call": "c", "tool": "t", "hosted": 1}, "r[0].hosted: must be true or false"),
        ({"result": "c", "output": 1, "failed": "x"}, "r[0]: output and failed"),
        ({"error": "overlod"}, 'not "overlod" (did you mean "overloaded"?)'),
        ({"error": "quota", "retry_after_s": float("inf")}, "r[0].retry_after_s: must be a finite number"),
        ({"event": "text_chunk"}, "r[0]: text_chunk needs text"),
        ({"event": "text_start", "text": "x"}, "r[0]: text_start has no text"),
        ({"event": "text_start", "call": "x"}, "r[0]: text_start has no call"),
        ({"event": "tool_input_end"}, "r[0]: tool_input_end needs call"),
        ({"event": "tex_start"}, 'did you mean "text_start"?'),
        ({"stall_ms": -1}, "r[0].stall_ms: must be at least 0"),
        ({"on_close": "x", "delay_ms": 1}, 'r[0].delay_ms: unknown key "delay_ms"'),
        ({"text": "\\u12", "escapes": True}, "r[0]: escapes: "),
        ({"text": "x", "escapes": 1}, "r[0].escapes: must be true or false"),
    ],
)
def test_a_bad_line_is_refused_with_its_place(item: Any, says: str) -> None:
    """The message begins with where the line stands, and says what is wrong with it."""
    with pytest.raises(ScriptError) as caught:
        parse_reply([item], "r")
    assert says in str(caught.value)


def test_every_bad_line_is_told() -> None:
    """Two flaws give a message of two lines."""
    with pytest.raises(ScriptError) as caught:
        parse_reply([{"text": 3}, {"finish": "stop"}, {"cut": 3}], "replies[1]")
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "replies[1][0].text",
        "replies[1][2].cut",
    ]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ((Cut(cut="x"), Finish()), "after a cut"),
        ((OnClose(on_close="x"), OnClose(on_close="y")), "on_close is given twice"),
        ((SlowClose(close_ms=1), SlowClose(close_ms=1)), "close_ms is given twice"),
        ((Unreachable(unreachable="x"), Text(text="y")), "unreachable"),
        ((Unreachable(unreachable="x"), OnClose(on_close="y")), "unreachable"),
    ],
)
def test_a_line_that_could_never_be_played_is_refused(lines: tuple[Any, ...], says: str) -> None:
    """A reply in which something could never happen is a mistake, in Python as in data."""
    with pytest.raises(ScriptError, match=says):
        reply(*lines)
    assert reply(Cut(cut="x"), OnClose(on_close="y")).on_close is not None


def test_python_and_data_say_the_same() -> None:
    """Each line class has the keys of its table."""
    items: list[dict[str, Any]] = [
        {"text": "a", "chunks": 2},
        {"call": "c", "tool": "t", "input": {"q": 1}, "streamed": True},
        {"result": "c", "output": 1},
        {"error": "quota", "message": "m"},
        {"event": "text_start"},
        {"stall_ms": 1},
        {"finish": "stop"},
    ]
    assert parse_reply(items, "r") == reply(
        Text(text="a", chunks=2),
        Call(call="c", tool="t", input={"q": 1}, streamed=True),
        Result(result="c", output=1),
        Error(error="quota", message="m"),
        Event(event="text_start"),
        Stall(stall_ms=1),
        Finish(),
    )
    assert says("x") == parse_reply([{"text": "x"}, {"finish": "stop"}], "r")


def test_every_line_that_speaks_may_be_delayed() -> None:
    """Only silence itself, and what is said about the request's end, takes no delay."""
    undelayed = [cls for cls in LINES if "delay_ms" not in attrs.fields_dict(cls)]
    assert undelayed == [Stall, OnClose, SlowClose]
    assert set(ABOUT_REQUEST) == {Unreachable, OnClose, SlowClose}


def test_a_script_is_read_from_toml() -> None:
    """A TOML text with the one key `replies` is a tuple of replies."""
    text = 'replies = [ [ { text = "a" }, { finish = "stop" } ], [ { cut = "x" } ] ]'
    assert parse_script(text) == (says("a"), reply(Cut(cut="x")))
    for bad in ("replies = [", "x = 1", "replies = 3", "replies = []", 'replies = []\nx = ""'):
        with pytest.raises(ScriptError, match="demo: "):
            parse_script(bad, "demo")
    with pytest.raises(ScriptError, match=r"demo: replies\[1\]\[0\].text: "):
        parse_script("replies = [ [], [ { text = 1 } ] ]", "demo")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab\\u", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*(cls.leads for cls in LINES), "id", "tool", "chunks", "escapes"]), inner
        )
    ),
    max_leaves=10,
)


@given(items=st.lists(JUNK, max_size=4))
def test_any_data_is_played_or_refused(items: Any) -> None:
    """Whatever stands in a file, the only failure is a `ScriptError` that names its place."""
    refused = ""
    try:
        made = parse_reply(items, "r")
    except ScriptError as exc:
        refused = str(exc)
    if refused:
        assert all(line.startswith("r[") for line in refused.splitlines())
    else:
        assert list(made.moves()) == list(made.moves())
        json.dumps(attrs.asdict(made))
