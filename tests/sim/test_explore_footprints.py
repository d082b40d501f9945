"""Steps that commute are told from those that don't, and pasts that differ only in their order are one."""

from __future__ import annotations

import inspect
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.store.transaction import SqliteReader, SqliteTransaction
from sim.explore.footprints import (
    ADMISSION,
    EVERYTHING,
    READS_BY_ID,
    Footprint,
    Noted,
    Past,
    Touched,
    all_rows,
    commute,
    touch_rows,
)

NAMES = ("x", "y", "z")
SESSIONS = ("ses_s", "ses_t")


def prints() -> st.SearchStrategy[Footprint]:
    some = st.lists(st.sampled_from(NAMES), unique=True, max_size=2)
    told = st.builds(lambda reads, writes: touching(reads, writes).footprint(), some, some)
    return st.one_of(told, told, told, st.just(EVERYTHING))


def touching(reads: Any, writes: Any) -> Touched:
    touched = Touched()
    touched.read(*reads)
    touched.write(*writes)
    return touched


def past_of(steps: list[tuple[int, Footprint]]) -> Past:
    past = Past()
    for key, footprint in steps:
        past = past.after(key, past.of(key, footprint), footprint)
    return past


# --- footprints --------------------------------------------------------------------------------------


def test_readers_commute_and_writers_dont() -> None:
    """Two that read one thing commute; whoever writes it commutes with neither readers nor writers of it."""
    reads, writes = Footprint(reads=("x",)), Footprint(writes=("x",))
    assert commute(reads, reads)
    assert not commute(reads, writes)
    assert not commute(writes, writes)
    assert commute(writes, Footprint(reads=("y",), writes=("z",)))
    assert not commute(EVERYTHING, Footprint())


@given(prints(), prints())
def test_commuting_is_mutual(a: Footprint, b: Footprint) -> None:
    """Neither of two steps is the first one by nature."""
    assert commute(a, b) == commute(b, a)


def test_what_is_written_isnt_told_as_read() -> None:
    """A footprint names each resource once, sorted, whatever the order of the calls."""
    touched = touching(("y", "x"), ("z", "x"))
    touched.add(touching(("a",), ()))
    assert touched.footprint() == Footprint(reads=("a", "y"), writes=("x", "z"))
    touched.add(Touched(everything=True))
    assert touched.footprint() == EVERYTHING


# --- the store's rows --------------------------------------------------------------------------------


def methods() -> list[str]:
    both = {**vars(SqliteReader), **vars(SqliteTransaction)}
    return sorted(name for name, value in both.items() if name[0] != "_" and inspect.isfunction(value))


@attrs.frozen
class Row:
    session_id: str = "ses_s"
    event_id: str = "evt_1"
    input_id: str = "inp_1"


@pytest.mark.parametrize("name", methods())
def test_each_call_of_the_store_is_known(name: str) -> None:
    """No method of a transaction is left to touch everything; a new one needs a line in the tables."""
    touched = Touched()
    first = Row() if name.startswith(("append_", "put_")) and name != "put_generation" else "ses_s"
    touch_rows(touched, name, (first, 1, 2), SESSIONS)
    assert not touched.everything
    found = touched.footprint()
    assert name in ("end", "tell") or found != Footprint()
    writes = any("/ses_s" in one for one in found.writes)
    assert writes == name.startswith(("append_", "put_", "delete_", "park_", "unpark_", "erase_"))


def test_a_call_that_isnt_known_touches_everything() -> None:
    """What the tables don't name could do anything."""
    touched = Touched()
    touch_rows(touched, "vacuum", (), SESSIONS)
    assert touched.footprint() == EVERYTHING


def test_a_look_at_all_claims_depends_on_each() -> None:
    """The sweep's read doesn't commute with a claim that is written, and does with an event."""
    sweep, claim, event = Touched(), Touched(), Touched()
    touch_rows(sweep, "claims_due", (0, 10), SESSIONS)
    touch_rows(claim, "put_claim", (Row("ses_t"),), SESSIONS)
    touch_rows(event, "append_event", (Row("ses_t"),), SESSIONS)
    assert not commute(sweep.footprint(), claim.footprint())
    assert commute(sweep.footprint(), event.footprint())


def test_inputs_are_in_one_order_over_all_sessions() -> None:
    """Two inputs of different sessions don't commute: who waits longest is taken first."""
    one, other = Touched(), Touched()
    touch_rows(one, "put_input", (Row("ses_s", input_id="inp_1"),), SESSIONS)
    touch_rows(other, "put_input", (Row("ses_t", input_id="inp_2"),), SESSIONS)
    assert ADMISSION in one.footprint().writes
    assert not commute(one.footprint(), other.footprint())


class Reader:
    """Finds a row of another session by its id."""

    now_ms = 7

    def input(self, input_id: str) -> Row | None:
        return Row("ses_t", input_id=input_id) if input_id == "there" else None


def test_noted_calls_are_passed_on() -> None:
    """A noted reader answers as the reader does; a row that was found by its id counts as read."""
    touched = Touched()
    noted = Noted(Reader(), lambda: touched, SESSIONS)
    assert (noted.now_ms, noted.input("gone")) == (7, None)
    assert touched.footprint() == Footprint(reads=("input id/gone",))
    assert noted.input("there") == Row("ses_t", input_id="there")
    assert f"{READS_BY_ID['input']}/ses_t" in touched.footprint().reads


def test_all_rows_are_those_of_one_session() -> None:
    """Whoever touches a whole session touches each of its tables."""
    assert {row.partition("/")[2] for row in all_rows("ses_s")} == {"ses_s"}
    assert "claim/ses_s" in all_rows("ses_s")


# --- what came before --------------------------------------------------------------------------------


@given(st.lists(prints(), min_size=2, max_size=7), st.data())
def test_pasts_are_one_up_to_commuting_steps(footprints: list[Footprint], data: st.DataObject) -> None:
    """Neighbours that commute change places and nothing else changes; two that don't make another past."""
    steps = list(enumerate(footprints))
    place = data.draw(st.integers(0, len(steps) - 2))
    swapped = [*steps[:place], steps[place + 1], steps[place], *steps[place + 2 :]]
    same = commute(steps[place][1], steps[place + 1][1])
    assert (past_of(steps).whole == past_of(swapped).whole) is same
    assert past_of(steps).in_order != past_of(swapped).in_order


@given(st.lists(prints(), max_size=5), prints())
def test_a_step_is_known_by_what_it_depends_on(footprints: list[Footprint], last: Footprint) -> None:
    """A step's hash is the same with and without earlier steps that it and all between commute with."""
    steps = list(enumerate(footprints))
    alone = [(key, one) for key, one in steps if not commute(one, last)]
    touched = [one for _, one in steps if commute(one, last)]
    if all(commute(one, other) for one in touched for _, other in alone):
        assert past_of(steps).of("k", last) == past_of(alone).of("k", last)
    assert past_of(steps).of("k", last) != past_of(steps).of("other", last)


def test_a_join_forgets_the_order() -> None:
    """Where nothing is left to choose from, the order that led there counts no more."""
    x, y = (1, Footprint(writes=("x",))), (2, Footprint(writes=("y",)))
    assert past_of([x, y]).in_order != past_of([y, x]).in_order
    assert past_of([x, y]).joined().in_order == past_of([y, x]).joined().in_order
