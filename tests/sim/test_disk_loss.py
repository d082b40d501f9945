"""What of the unsynced changes outlives a loss of power."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.disk.files import Change
from sim.disk.loss import drawn
from sim.tape import Tape

CHANGES = [
    Change(number=1, offset=0, data=b"a" * 24),
    Change(number=2, offset=24, data=b"b" * 4096),
    Change(number=3, offset=100, data=None),
    Change(number=4, offset=512, data=b"c" * 512),
    Change(number=5, offset=0, data=b"d" * 1024),
]


def test_zeros_lose_everything() -> None:
    """The plainest loss: nothing that wasn't synced is there."""
    assert drawn(Tape.fifo(), None)(CHANGES) == []


def test_nothing_unsynced_is_no_decision() -> None:
    """A loss that has nothing to take draws nothing, so that it shifts no other draw."""
    tape = Tape.seeded(1)
    assert drawn(tape, None)([]) == []
    assert tape.draws["store"] == []


@pytest.mark.parametrize("seed", range(20))
def test_lost_and_kept_are_what_they_say(seed: int) -> None:
    """Whatever the tape, and without a draw."""
    tape = Tape.seeded(seed)
    assert drawn(tape, "lost")(CHANGES) == []
    assert drawn(tape, "kept")(CHANGES) == CHANGES
    assert tape.draws["store"] == []


def test_from_zeros_a_torn_write_is_cut_after_its_first_sector() -> None:
    """So a scenario that says `torn` tears something without a tape; what fits a sector is whole."""
    survived = drawn(Tape.fifo(), "torn")(CHANGES)
    assert [change.number for change in survived] == [1, 2, 3, 4, 5]
    assert [len(change.data or b"") for change in survived] == [24, 488, 0, 512, 512]


@given(st.lists(st.integers(0, 9), max_size=40), st.sampled_from([None, "some", "torn"]))
def test_what_survives_is_a_part_in_the_same_order(draws: list[int], how: object) -> None:
    """Each survivor is one of the changes, or a beginning of one, and none overtakes another."""
    survived = drawn(Tape.replay({"store": draws}), how)(CHANGES)  # type: ignore[arg-type]
    numbers = [change.number for change in survived]
    assert numbers == sorted(set(numbers))
    for change in survived:
        whole = CHANGES[change.number - 1]
        assert change.offset == whole.offset
        assert (whole.data or b"").startswith(change.data or b"")
        assert how == "torn" or how is None or change == whole


def test_every_way_is_drawn() -> None:
    """Over some seeds everything is lost, kept, thinned out and torn."""
    found = set()
    for seed in range(40):
        survived = drawn(Tape.seeded(seed), None)(CHANGES)
        cut = any(change != CHANGES[change.number - 1] for change in survived)
        found.add("torn" if cut else {0: "lost", len(CHANGES): "kept"}.get(len(survived), "some"))
    assert found == {"lost", "kept", "some", "torn"}
