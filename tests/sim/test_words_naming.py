"""Ids become names that a reader of the scenario knows, and stay exact within their session."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.record import Record
from sim.scenario import Fault, parse_scenario
from sim.tape import Tape
from sim.words.naming import Names, ordinal, seconds, session_name
from sim.world import World

WORLD = """
proves = "Two turns, and a restart between them."
name = "named"
[[nodes]]
name = "a"
[[nodes]]
name = "b"
[[sessions]]
name = "s"
[[actions]]
do = "send"
node = "a"
session = "s"
text = "Hello"
at_s = 0.0
[[actions]]
do = "send"
node = "b"
session = "s"
text = "Again"
input = "mine"
at_s = 9.0
[[actions]]
do = "send"
node = "b"
session = "s"
text = "And again"
at_s = 12.0
"""


@contextmanager
def recorded(*faults: Fault) -> Iterator[Record]:
    scenario, problems = parse_scenario(WORLD, "named.toml")
    assert scenario is not None, problems
    run = World(attrs.evolve(scenario, faults=faults), Tape.fifo()).run()
    try:
        yield Record(run)
    finally:
        run.close()


def ids(record: Record, prefix: str) -> list[str]:
    """The ids of one kind in the session's log, in their order."""
    rows = record.events("ses_s")
    whole = " ".join(f"{row.execution_id} {row.data!r}" for row in rows)
    return list(dict.fromkeys(re.findall(rf"\b{prefix}_[\w.]+", whole)))


def test_executions_are_counted_by_node() -> None:
    """A node's only execution needs no number; of several each has its own."""
    with recorded() as record:
        names = Names(record, "ses_s")
        assert [names.execution(each) for each in ids(record, "exe")] == [
            "a's execution",
            "b's 1st execution",
            "b's 2nd execution",
        ]
        first, second, _ = ids(record, "exe")
        assert (names.claim(first), names.claim(second)) == ("a's claim", "b's 1st claim")
        assert (names.claim(first, by="a.1"), names.claim(first, by="b.1")) == ("its claim", "a's claim")


def test_steps_and_inputs_are_counted_in_the_log() -> None:
    """The n-th that started or was admitted is number n, and an input that has a name of its own keeps it."""
    with recorded() as record:
        names = Names(record, "ses_s")
        assert [names.step(each) for each in ids(record, "msg")] == ["step 1", "step 2", "step 3"]
        text = f"{', '.join(ids(record, 'inp'))}; mine"
        assert names.plain(text) == "input 1, input 3; mine"
        assert names.input("mine") == "input 2"


def test_what_the_log_doesnt_hold_is_said() -> None:
    """An id that never came up has no number, and nothing is made up for it."""
    with recorded() as record:
        names = Names(record, "ses_s")
        assert names.plain("step msg_a.1_x_9 and inp_a.1_x_9") == (
            "a step that never started and an input that was never admitted"
        )
        assert names.execution("exe_of_somebody") == "execution exe_of_somebody"


def test_a_node_that_came_back_is_named_by_its_incarnation() -> None:
    """`a` is enough where there was one; where there were two, each is told apart."""
    cut = Fault(kind="power_cut", node="a", at_s=5.0, for_s=1.0)
    with recorded(cut) as record:
        names = Names(record, "ses_s")
        assert [names.node(key) for key in ("a.1", "a.2", "b.1", "a")] == ["a.1", "a.2", "b", "a"]


def test_names_replace_ids_and_the_words_before_them() -> None:
    """`execution exe_…` and `session 'ses_…'` read as one name, and all else of a text stays."""
    with recorded() as record:
        first = ids(record, "exe")[0]
        names = Names(record, "ses_s")
        assert (
            names.plain(f"execution {first} of session 'ses_s' ended") == "a's execution of session s ended"
        )
        assert names.plain("nothing to see") == "nothing to see"


@given(st.text(max_size=60))
def test_a_text_without_ids_stays_as_it_is(text: str) -> None:
    """Nothing but ids is replaced, and what was replaced once is not replaced again."""
    with recorded() as record:
        names = Names(record, "ses_s")
        once = names.plain(text)
        assert names.plain(once) == once
        if not re.search(r"(exe|msg|inp|ses)_", text):
            assert once == text


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (21, "21st"),
        (112, "112th"),
    ],
)
def test_ordinals(number: int, word: str) -> None:
    """Numbers read as a person would write them."""
    assert ordinal(number) == word


def test_times_and_sessions() -> None:
    """Seconds with one decimal, and a session by the scenario's name of it."""
    assert (seconds(9_240.0), seconds(31_000), seconds(0)) == ("9.2 s", "31.0 s", "0.0 s")
    assert session_name("ses_s") == "s"
