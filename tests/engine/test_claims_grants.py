"""What a granted claim command writes, and which moves are bugs."""

from __future__ import annotations

import attrs
import pytest

from engine.claims import (
    EXPIRED_AT_ONCE,
    HANDED_OVER,
    Detach,
    Facts,
    Granted,
    Keep,
    Open,
    Refused,
    Renew,
    Update,
    Watched,
    decide,
    granted,
)
from engine.errors import ClaimHeld, ClaimLost, SessionDeleted, SessionQuarantined
from engine.records import Claim, Phase
from tests.engine.claim_samples import ASKS, FACTS, LEASE, MINE, NOW, acquire, answer, make_row, update

# --- acquire -----------------------------------------------------------------------------------------


def test_insert() -> None:
    """An acquire without a row inserts a `ready` one with the next generation and a lease from now."""
    assert decide(None, FACTS, acquire(), NOW) == Granted(
        row=Claim(
            session_id="ses_1",
            execution_id="exe_new",
            owner_id="own_new",
            generation=5,
            phase=Phase.READY,
            assistant_message_id=None,
            assistant_seq=7,
            expires_at=NOW + LEASE,
            created_at=NOW,
            version=1,
            interrupt_seq=None,
        )
    )


def test_insert_over_an_open_step() -> None:
    """If the log shows an open step, as after a released quarantine, the first phase is `unknown`."""
    facts = Facts(generation=4, assistant_seq=7, open_message_id="msg_1")
    row = granted(decide(None, facts, acquire(), NOW)).row
    assert row is not None
    assert (row.phase, row.assistant_message_id, row.assistant_seq) == (Phase.UNKNOWN, "msg_1", 7)


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("expires_at", [HANDED_OVER, EXPIRED_AT_ONCE, NOW - 50, NOW])
def test_take_over(phase: Phase, expires_at: int) -> None:
    """A take-over changes execution, owner, generation, lease and version, and keeps all the rest."""
    row = make_row(phase, expires_at=expires_at, interrupt_seq=3)
    taken = attrs.evolve(
        row,
        execution_id="exe_new",
        owner_id="own_new",
        generation=5,
        expires_at=NOW + LEASE,
        version=10,
    )
    assert decide(row, FACTS, acquire(), NOW) == Granted(row=taken, previous=row)


def test_a_live_row_is_held_to_the_last_millisecond() -> None:
    """A row that expires one millisecond from now isn't taken over, not even by its own owner."""
    row = make_row(expires_at=NOW + 1, owner_id="own_new")
    decision = decide(row, FACTS, acquire(), NOW)
    assert decision == Refused(
        reason=(
            "Session ses_1 is held by execution exe_mine of owner own_new until 10001; it is 10000,"
            " 1 ms earlier, so execution exe_new can't claim it."
        ),
        error=ClaimHeld,
    )


@pytest.mark.parametrize("now_ms", [-5, 0, 1])
@pytest.mark.parametrize("expires_at", [HANDED_OVER, EXPIRED_AT_ONCE])
def test_freed_is_free_on_any_clock(now_ms: int, expires_at: int) -> None:
    """A freed row is free, and lost to its former holder, even where a clock counts from zero or below."""
    row = make_row(expires_at=expires_at)
    assert answer(decide(row, FACTS, acquire(), now_ms)) == "taken"
    assert answer(decide(row, FACTS, Renew(fence=MINE, lease_ms=LEASE), now_ms)) == "lost"


@pytest.mark.parametrize("phase", list(Phase))
def test_watched_row_is_taken_over(phase: Phase) -> None:
    """A live row is taken over if it still stands as it was watched, and gets a plain lease."""
    row = make_row(phase, expires_at=NOW + 9_000_000)
    taken = decide(row, FACTS, acquire(Watched(execution_id="exe_mine", version=9)), NOW)
    assert answer(taken) == "taken"
    assert granted(taken).row == attrs.evolve(
        row, execution_id="exe_new", owner_id="own_new", generation=5, expires_at=NOW + LEASE, version=10
    )


@pytest.mark.parametrize("watched", [("exe_mine", 8), ("exe_other", 9)])
def test_watched_row_that_moved_is_held(watched: tuple[str, int]) -> None:
    """Another version, or the same version of another execution, isn't what was watched."""
    seen = Watched(execution_id=watched[0], version=watched[1])
    decision = decide(make_row(), FACTS, acquire(seen), NOW)
    assert answer(decision) == "held"
    assert isinstance(decision, Refused)
    assert decision.reason.endswith(
        f"; what was watched is version {watched[1]} of execution {watched[0]}, and it stands at version 9."
    )


@pytest.mark.parametrize("row", [None, make_row(), make_row(expires_at=HANDED_OVER)])
@pytest.mark.parametrize(
    ("facts", "error"),
    [
        (Facts(generation=4, deleted=True), SessionDeleted),
        (Facts(generation=4, quarantined=True), SessionQuarantined),
    ],
)
def test_deleted_and_quarantined_are_refused(row: Claim | None, facts: Facts, error: type[Exception]) -> None:
    """A deleted or quarantined session is acquired by nobody, whatever the row."""
    with pytest.raises(error, match=r"ses_1 .* generation 4, so execution exe_new can't claim it\.$"):
        granted(decide(row, facts, acquire(), NOW))


def test_take_over_needs_a_fresh_execution() -> None:
    """Taking over under the row's own execution id would leave the former holder unfenced: a bug."""
    row = make_row(execution_id="exe_new", expires_at=HANDED_OVER)
    with pytest.raises(AssertionError, match="fresh"):
        decide(row, FACTS, acquire(), NOW)


def test_generation_of_row_and_session_agree() -> None:
    """A row whose generation isn't the session's latest shows a bug, and isn't taken over."""
    with pytest.raises(AssertionError, match="latest generation"):
        decide(make_row(expires_at=HANDED_OVER), Facts(generation=6), acquire(), NOW)


# --- what grants write -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["renew", "running", "settling", "to-ready"])
def test_renewal_extends(name: str) -> None:
    """Renewals and fenced work move the end of the lease and the version, and nothing else."""
    row = make_row()
    assert decide(row, FACTS, ASKS[name], NOW) == Granted(
        row=attrs.evolve(row, expires_at=NOW + LEASE, version=10)
    )


@pytest.mark.parametrize("name", ["renew", "running", "settling", "to-ready"])
def test_renewal_never_shortens(name: str) -> None:
    """A renewal on a clock that stepped back keeps the later end, and still counts as a sign of life."""
    row = make_row(expires_at=NOW + 2 * LEASE)
    assert decide(row, FACTS, ASKS[name], NOW) == Granted(row=attrs.evolve(row, version=10))


@pytest.mark.parametrize(("name", "expires_at"), [("hand-over", HANDED_OVER), ("expire", EXPIRED_AT_ONCE)])
def test_freeing(name: str, expires_at: int) -> None:
    """A hand-over writes 0 and an expiry 1, and both leave the rest for the successor."""
    row = make_row(Phase.CONTINUE)
    assert decide(row, FACTS, ASKS[name], NOW) == Granted(
        row=attrs.evolve(row, expires_at=expires_at, version=10)
    )


@pytest.mark.parametrize(("before", "after"), [(None, 12), (3, 12), (12, 12), (40, 40)])
def test_interrupt_is_raised_and_never_lowered(before: int | None, after: int) -> None:
    """A request sets `interrupt_seq` to the greatest asked for, live row or not; the version stays."""
    for expires_at in (NOW + 100, NOW - 100, HANDED_OVER):
        row = make_row(Phase.UNKNOWN, interrupt_seq=before, expires_at=expires_at)
        assert decide(row, FACTS, ASKS["interrupt"], NOW) == Granted(
            row=attrs.evolve(row, interrupt_seq=after)
        )


def test_interrupt_of_another_execution_is_lost() -> None:
    """A request for an execution that is over doesn't reach its successor."""
    with pytest.raises(
        ClaimLost, match=r"^Execution exe_mine of session ses_1 .* exe_other .* generation 5\.$"
    ):
        granted(decide(make_row(execution_id="exe_other", generation=5), FACTS, ASKS["interrupt"], NOW))


def test_step_opens_and_detaches() -> None:
    """Opening sets message id and seq, keeping leaves both, detaching clears the id and keeps the seq."""

    def step_after(row: Claim | None, command: Update) -> tuple[Claim | None, tuple[str | None, int]]:
        row = granted(decide(row, FACTS, command, NOW)).row
        assert row is not None
        return row, (row.assistant_message_id, row.assistant_seq)

    row, step = step_after(make_row(), update(Phase.UNKNOWN))
    assert step == ("msg_2", 8)
    row, step = step_after(row, update(Phase.CANCELLING))
    assert step == ("msg_2", 8)
    row, step = step_after(row, update(Phase.CANCELLED))
    assert step == (None, 8)


@pytest.mark.parametrize(
    ("start", "phase", "step", "message"),
    [
        (Phase.READY, Phase.CONTINUE, Open(message_id="msg_2", seq=8), "opens in phase unknown"),
        (Phase.UNKNOWN, Phase.CANCELLING, Open(message_id="msg_2", seq=8), "opens in phase unknown"),
        (Phase.READY, Phase.UNKNOWN, Open(message_id="msg_2", seq=7), "doesn't follow 7"),
        (Phase.READY, Phase.UNKNOWN, Keep(), "holds an open step"),
        (Phase.UNKNOWN, Phase.UNKNOWN, Detach(), "holds an open step"),
        (Phase.UNKNOWN, Phase.SAFE, Keep(), "safe holds no open step"),
        (Phase.UNKNOWN, Phase.CONTINUE, Keep(), "continue holds no open step"),
        (Phase.CANCELLING, Phase.CANCELLED, Keep(), "cancelled holds no open step"),
    ],
)
def test_step_that_does_not_fit_is_a_bug(start: Phase, phase: Phase, step: Open | Keep, message: str) -> None:
    """A step opens only into `unknown`, after all earlier ones, and is detached where none may be open."""
    with pytest.raises(AssertionError, match=message):
        decide(make_row(start), FACTS, Update(fence=MINE, phase=phase, step=step, lease_ms=LEASE), NOW)


@pytest.mark.parametrize("start", [Phase.READY, Phase.CONTINUE, Phase.SAFE])
def test_keep_where_no_step_is_open(start: Phase) -> None:
    """Where no step is open, keeping and detaching come to the same."""
    for step in (Keep(), Detach()):
        command = Update(fence=MINE, phase=start, step=step, lease_ms=LEASE)
        row = granted(decide(make_row(start), FACTS, command, NOW)).row
        assert row is not None
        assert row.assistant_message_id is None
