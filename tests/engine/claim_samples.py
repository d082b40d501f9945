"""Rows, facts and commands that the tests of the claim rules share."""

from __future__ import annotations

import attrs

from engine.claims import (
    HOLDS_STEP,
    Acquire,
    Clear,
    Command,
    Decision,
    Detach,
    Drop,
    Expire,
    Facts,
    Granted,
    HandOver,
    Keep,
    Lost,
    Open,
    Refused,
    Renew,
    RequestInterrupt,
    Step,
    Update,
    Watched,
    Work,
)
from engine.errors import ClaimCancelling, ClaimHeld
from engine.records import Claim, Fence, Phase

NOW = 10_000
LEASE = 300
FACTS = Facts(generation=4, assistant_seq=7)
MINE = Fence(session_id="ses_1", execution_id="exe_mine", owner_id="own_mine", generation=4)


def make_row(phase: Phase = Phase.READY, **changes: object) -> Claim:
    row = Claim(
        session_id="ses_1",
        execution_id="exe_mine",
        owner_id="own_mine",
        generation=4,
        phase=phase,
        assistant_message_id="msg_1" if phase in HOLDS_STEP else None,
        assistant_seq=7,
        expires_at=NOW + 100,
        created_at=5_000,
        version=9,
        interrupt_seq=None,
    )
    return attrs.evolve(row, **changes)  # type: ignore[arg-type]


def acquire(watched: Watched | None = None) -> Acquire:
    return Acquire(
        session_id="ses_1", execution_id="exe_new", owner_id="own_new", lease_ms=LEASE, watched=watched
    )


def update(phase: Phase) -> Update:
    """The update that fits the phase it leads to."""
    fitting: dict[Phase, Step] = {Phase.UNKNOWN: Open(message_id="msg_2", seq=8), Phase.CANCELLING: Keep()}
    step = fitting.get(phase, Detach())
    return Update(fence=MINE, phase=phase, step=step, lease_ms=LEASE)


def answer(decision: Decision) -> str:
    match decision:
        case Granted(row=None):
            return "deleted"
        case Granted(previous=None):
            return "granted"
        case Granted():
            return "taken"
        case Lost():
            return "lost"
        case Refused(error=error):
            words: dict[type[Exception], str] = {ClaimHeld: "held", ClaimCancelling: "refused"}
            return words.get(error, error.__name__)


ASKS: dict[str, Command] = {
    "acquire": acquire(),
    "renew": Renew(fence=MINE, lease_ms=LEASE),
    "running": Work(fence=MINE, lease_ms=LEASE, settling=False),
    "settling": Work(fence=MINE, lease_ms=LEASE, settling=True),
    "interrupt": RequestInterrupt(session_id="ses_1", execution_id="exe_mine", seq=12),
    "clear": Clear(fence=MINE),
    "drop": Drop(fence=MINE),
    "hand-over": HandOver(fence=MINE),
    "expire": Expire(fence=MINE),
    "to-ready": update(Phase.READY),
    "to-unknown": update(Phase.UNKNOWN),
    "to-continue": update(Phase.CONTINUE),
    "to-safe": update(Phase.SAFE),
    "to-cancelling": update(Phase.CANCELLING),
    "to-cancelled": update(Phase.CANCELLED),
}
