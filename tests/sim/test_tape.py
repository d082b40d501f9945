"""The choice tape."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.tape import STREAMS, Draw, Tape, TapeError

ASKS = st.lists(st.tuples(st.sampled_from(STREAMS), st.text(max_size=5), st.integers(1, 50)), max_size=40)


def draw_all(tape, asks):
    return [tape.draw(stream, label, bound) for stream, label, bound in asks]


def test_fifo_draws_zeros():
    """The fifo tape always takes the default."""
    tape = Tape.fifo()
    assert draw_all(tape, [("schedule", "x", n) for n in range(1, 9)]) == [0] * 8
    assert tape.changed() == 0


@given(st.integers(), ASKS)
def test_seeded_draws_stay_in_bounds_and_repeat(seed, asks):
    """One seed gives one tape, and every value is below its bound."""
    first = draw_all(Tape.seeded(seed), asks)
    assert first == draw_all(Tape.seeded(seed), asks)
    assert all(0 <= value < bound for value, (_, _, bound) in zip(first, asks, strict=True))


def test_seeded_values_are_the_same_everywhere():
    """A seed means the same tape on every machine, in every process and Python version."""
    tape = Tape.seeded(7)
    assert [tape.draw("schedule", "pick", 1000) for _ in range(6)] == [443, 184, 553, 751, 629, 50]
    assert [tape.draw("faults", "pick", 1000) for _ in range(4)] == [676, 815, 629, 670]


def test_seeds_differ():
    """Different seeds fill different tapes."""
    tapes = {tuple(draw_all(Tape.seeded(seed), [("schedule", "x", 100)] * 10)) for seed in range(50)}
    assert len(tapes) == 50


@given(st.integers(), ASKS)
def test_streams_do_not_disturb_each_other(seed, asks):
    """Draws of one stream are what they are without the other streams' draws."""
    mixed = Tape.seeded(seed)
    draw_all(mixed, asks)
    for stream in STREAMS:
        alone = Tape.seeded(seed)
        draw_all(alone, [ask for ask in asks if ask[0] == stream])
        assert alone.draws[stream] == mixed.draws[stream]


@given(st.integers(), ASKS)
def test_recorded_draws_replay(seed, asks):
    """Replaying what was recorded, through JSON or as bare values, gives the same values and records."""
    original = Tape.seeded(seed)
    values = draw_all(original, asks)
    for again in (
        Tape.replay(original.draws),
        Tape.replay(original.values()),
        Tape.from_json(original.to_json()),
    ):
        assert draw_all(again, asks) == values
        assert again.draws == original.draws


@given(st.lists(st.integers(0, 30), max_size=10), st.lists(st.integers(1, 9), max_size=20))
def test_every_list_of_numbers_is_a_tape(values, bounds):
    """Values beyond their bound are cut to the greatest possible one, and zeros follow the end."""
    tape = Tape.replay({"store": values})
    asked = [bound for bound in bounds if bound > 1]
    got = [tape.draw("store", "x", bound) for bound in asked]
    padded = values + [0] * len(asked)
    assert got == [min(value, bound - 1) for value, bound in zip(padded, asked, strict=False)]


def test_a_bound_of_one_is_no_decision():
    """A draw with one possibility isn't recorded and doesn't use up a forced value."""
    tape = Tape.replay({"schedule": [3]})
    assert tape.draw("schedule", "x", 1) == 0
    assert tape.draw("schedule", "y", 5) == 3
    assert tape.draws["schedule"] == [Draw("y", 5, 3)]


def test_values_leave_out_trailing_zeros():
    """The short form of a tape ends with its last change."""
    tape = Tape.replay({"clocks": [0, 2]})
    for _ in range(5):
        tape.draw("clocks", "x", 3)
    assert tape.values() == {"schedule": [], "faults": [], "clocks": [0, 2], "provider": [], "store": []}
    assert tape.changed() == 1


def test_a_source_is_held_to_the_bound():
    """A source that answers outside its bound is an error that names the draw."""
    for answer in (-1, 2):
        with pytest.raises(TapeError, match=r"faults/cut: .* isn't between 0 and 1"):
            Tape(lambda stream, label, bound, answer=answer: answer).draw("faults", "cut", 2)


def test_zero_never_happens():
    """The default draw means that no fault happens; the greatest one means that it does."""
    assert not Tape.fifo().happens("faults", "x", 999)
    assert Tape.replay({"faults": [999]}).happens("faults", "x", 1)
    assert not Tape.replay({"faults": [998]}).happens("faults", "x", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        json.dumps({"version": 2, "draws": {}}),
        json.dumps({"version": 1, "draws": {"weather": []}}),
        json.dumps({"version": 1, "draws": {"store": [["x", 2, 2]]}}),
        json.dumps({"version": 1, "draws": {"store": [["x", 2, -1]]}}),
        json.dumps({"version": 1, "draws": {"store": [5]}}),
    ],
)
def test_what_is_no_tape_is_refused(text):
    """A file that isn't a tape is an error, not an empty tape."""
    with pytest.raises(TapeError):
        Tape.from_json(text)


def test_negative_values_are_refused():
    """A forced value is at least 0."""
    with pytest.raises(TapeError, match="at least 0"):
        Tape.replay({"store": [-1]})
