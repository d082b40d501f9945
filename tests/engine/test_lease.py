"""The handle of a claim: its deadline, and the latch that keeps a lost claim lost."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ClaimLost
from engine.lease import Handle
from engine.limits import EngineConfig
from engine.records import Claim, Fence, Phase
from tests.engine.hand_clock import HandClock, HandScope

CONFIG = EngineConfig(
    lease_ms=30_000,
    clock_skew_ms_max=3_000,
    clock_rate_error_ppm=0,
    settle_ms_max=2_000,
    write_timeout_ms=1_000,
)
HOLD_S = 25.0  # lease - margin
FENCE = Fence(session_id="ses_1", execution_id="exe_1", owner_id="own_1", generation=1)
ROW = Claim(
    session_id="ses_1", execution_id="exe_1", owner_id="own_1", generation=1, phase=Phase.READY,
    assistant_message_id=None, assistant_seq=-1, expires_at=10**12, created_at=0, version=1,
    interrupt_seq=None,
)  # fmt: skip


def held(sent: float = 100.0) -> tuple[Handle, HandClock]:
    """A handle acquired by a write that was queued at `sent`, and its clock."""
    clock = HandClock(sent)
    return Handle(FENCE, CONFIG, clock, sent=sent), clock


def lost(handle: Handle) -> bool:
    """Whether a check raises."""
    try:
        handle.check()
    except ClaimLost:
        return True
    return False


def test_a_handle_ends_a_margin_before_its_lease() -> None:
    """Counted from before the write was queued: the last usable instant is before lease less margin."""
    handle, clock = held()
    assert handle.deadline == 100 + HOLD_S
    clock.now = 100 + HOLD_S - 0.001
    handle.check()
    clock.now = 100 + HOLD_S
    with pytest.raises(
        ClaimLost, match=r"execution exe_1 of ses_1 lost its claim: its own deadline passed 0.000 s"
    ):
        handle.check()


def test_the_latch_stays_shut() -> None:
    """A deadline that passed isn't undone by a clock that steps back, nor by a renewal that comes in late."""
    handle, clock = held()
    clock.now = 1_000.0
    assert lost(handle)
    clock.now = 100.0
    assert lost(handle)
    handle.renewed(1_000.0)
    assert lost(handle)


def test_the_first_reason_stands_and_is_told_once() -> None:
    """Who learns of the loss is told once, with the first cause."""
    handle, _ = held()
    told: list[str | None] = []
    handle.on_lost = lambda: told.append(handle.lost)
    handle.lose("taken over")
    handle.lose("and again")
    assert told == ["taken over"]
    with pytest.raises(ClaimLost, match="taken over"):
        handle.check()


def test_the_check_itself_tells_of_a_deadline_that_passed() -> None:
    """Work is stopped by whoever notices first, also where no scope fired (after a suspend)."""
    handle, clock = held()
    told: list[bool] = []
    handle.on_lost = lambda: told.append(True)
    clock.now = 500.0
    assert lost(handle)
    assert lost(handle)
    assert told == [True]


@given(st.lists(st.floats(100, 200), max_size=8))
def test_the_deadline_is_the_greatest_of_all_renewals(sents: list[float]) -> None:
    """Renewals may come in out of order; none shortens the lease, and watched scopes follow."""
    handle, _ = held()
    scope = HandScope(handle.deadline)
    handle.watch(scope)
    for sent in sents:
        handle.renewed(sent)
    assert handle.deadline == max([100.0, *sents]) + HOLD_S
    assert scope.deadline == handle.deadline


def test_a_settlement_that_began_in_time_may_finish_after_the_deadline() -> None:
    """It has `settle_ms_max`, which is inside the margin, and not an instant more."""
    handle, clock = held()
    clock.now = 100 + HOLD_S - 0.5
    handle.begin_settlement()
    clock.now = 100 + HOLD_S + 1.4
    handle.check()
    clock.now = 100 + HOLD_S + 1.5
    assert lost(handle)


def test_no_settlement_begins_after_the_deadline() -> None:
    """Too late is too late: nothing is written any more."""
    handle, clock = held()
    clock.now = 100 + HOLD_S
    with pytest.raises(ClaimLost):
        handle.begin_settlement()
    clock.now = 100.0
    assert lost(handle)


def test_a_settlement_never_shortens_the_lease() -> None:
    """One that begins early leaves the deadline where it was."""
    handle, clock = held()
    handle.begin_settlement()
    clock.now = 100 + HOLD_S - 0.001
    handle.check()


@pytest.mark.parametrize(
    ("row", "over"),
    [
        (ROW, False),
        (attrs.evolve(ROW, phase=Phase.CANCELLED), False),
        (attrs.evolve(ROW, expires_at=2), False),
        (None, True),
        (attrs.evolve(ROW, expires_at=0), True),
        (attrs.evolve(ROW, expires_at=1), True),
        (attrs.evolve(ROW, execution_id="exe_2"), True),
    ],
)
def test_our_own_commit_may_end_the_handle(row: Claim | None, over: bool) -> None:
    """Cleared, handed over or expired by ourselves: nothing more is written, and it isn't called a loss."""
    handle, _ = held()
    told: list[bool] = []
    handle.on_lost = lambda: told.append(True)
    handle.follow(row)
    assert handle.over is over
    assert lost(handle) is over
    handle.lose("late news")
    assert (handle.lost is None) is over
    assert told == ([] if over else [True])


def test_who_is_over_says_so() -> None:
    """The error of a handle that ended in good order isn't that of a lost one."""
    handle, _ = held()
    handle.follow(None)
    with pytest.raises(ClaimLost, match="execution exe_1 of ses_1 is over"):
        handle.check()
