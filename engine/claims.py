"""The rules of a session's claim, as one pure function over one table.

A claim is a lease with a fence. The lease (`expires_at`) lets others in when its holder is gone; the fence
(`execution_id`, `owner_id`) keeps the former holder out, whatever its clock says. `decide` takes the row as
it stands inside a write transaction and says what becomes of it; the caller writes. The rules, and why:

1.  One row per session. Who wants a claim inserts it, or takes over one that is free: expired by the taker's
    clock, handed over (0) or expired at once (1). A deleted or quarantined session is refused to everybody,
    since executing it again is what its tombstone or its defect forbids.
2.  A row dated far ahead by a clock that once jumped would never expire. Who watched it unchanged for long
    enough may take it over. Execution and version are compared again here, as it may have come back to life;
    both of them, because versions start anew with each insert.
3.  A take-over writes a fresh execution id, which fences the former holder at once, and keeps phase, step and
    interrupt: they are all its successor knows of what it found.
4.  Each acquire adds one to the session's generation, which outlives the row, so the log alone tells the
    order of executions.
5.  Every command of an execution names its fence, and is lost unless the row carries the same execution and
    owner and hasn't expired. An expired claim never renews itself, even while nobody has taken it over:
    somebody may just have read it as free.
6.  A renewal never shortens the lease: the holder planned by the later end, and its clock may step back.
7.  Only a sign of life of its holder changes a row's version: an interrupt asked of a dead holder must not
    make it look alive to those who watch (2).
8.  Anybody may ask for an interrupt, of the execution it saw. A request takes nothing away, so it is neither
    fenced nor bound to a live lease: the successor of a dead holder finds it.
9.  From then on running work is refused, and settling goes on until phase `cancelled`. The refusal is neither
    a loss nor a failure: the execution goes and settles.
10. An interrupt that was asked for or accepted is finished, never dropped: no hand-over, and no clearing
    before `cancelled`, which in turn is reached only through `cancelling`.
11. Only `unknown` and `cancelling` hold a message id: in any other phase a successor would take a settled
    step for an open one.
12. Quarantine drops the claim in whatever phase: a log that can't be understood can't be settled.

WARNING: `Update` looks at the phase, not at `interrupt_seq`. Each fenced transaction begins with `Work`,
which looks at both; an `Update` without it would let running work overlook a request.

What an execution *believes* of its claim (a local deadline, a latch that stays shut) isn't decided here.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from engine.claim_commands import (
    COMMANDS,
    Acquire,
    Clear,
    Command,
    Decision,
    Detach,
    Drop,
    Expire,
    Facts,
    Fenced,
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
    granted,
)
from engine.errors import ClaimCancelling, ClaimHeld, SessionDeleted, SessionQuarantined
from engine.records import Claim, Fence, Phase

# The commands are part of this module's face: whoever asks `decide` imports both from here.
# fmt: off
__all__ = [
    "COMMANDS", "EXPIRED_AT_ONCE", "HANDED_OVER", "HOLDS_STEP", "MOVES", "TABLE", "Acquire", "Clear",
    "Command", "Decision", "Detach", "Drop", "Expire", "Facts", "Fenced", "Granted", "HandOver", "Keep",
    "Lost", "Open", "Refused", "Renew", "RequestInterrupt", "Rule", "Step", "Update", "Watched", "Work",
    "decide", "granted", "is_free",
]
# fmt: on

HANDED_OVER = 0
"""`expires_at` of a claim its holder gave away in good order; the next take-over isn't counted."""

EXPIRED_AT_ONCE = 1
"""`expires_at` of a claim its holder gave up; the next take-over counts as an attempt."""

# --- the tables --------------------------------------------------------------------------------------


class Rule(enum.StrEnum):
    """What one cell of the table says, once the fence of a fenced command has held."""

    INSERT = "a new row, unless deleted or quarantined"
    TAKE_OVER = "taken over if free or watched, else held"
    GONE = "lost: there is no claim"
    ASK = "noted if it is the execution that was seen, else lost"
    GRANT = "granted"
    UNASKED = "granted unless an interrupt was asked for"
    UNASKED_OR_SETTLING = "granted unless an interrupt was asked for; settling work always"
    SETTLING = "granted to settling work only"
    MOVE = "granted if the move is in MOVES, else a bug"
    MOVE_OR_REFUSE = "granted if the move is in MOVES, else refused"
    REFUSE = "refused: the interrupt is being finished"


_RUNNING: Mapping[type[Command], Rule] = {
    Acquire: Rule.TAKE_OVER,
    RequestInterrupt: Rule.ASK,
    Renew: Rule.GRANT,
    Update: Rule.MOVE,
    Work: Rule.UNASKED_OR_SETTLING,
    Clear: Rule.UNASKED,
    Drop: Rule.GRANT,
    HandOver: Rule.UNASKED,
    Expire: Rule.GRANT,
}

TABLE: Mapping[Phase | None, Mapping[type[Command], Rule]] = {
    None: {
        Acquire: Rule.INSERT,
        RequestInterrupt: Rule.GONE,
        Renew: Rule.GONE,
        Update: Rule.GONE,
        Work: Rule.GONE,
        Clear: Rule.GONE,
        Drop: Rule.GONE,
        HandOver: Rule.GONE,
        Expire: Rule.GONE,
    },
    Phase.READY: _RUNNING,
    Phase.UNKNOWN: _RUNNING,
    Phase.CONTINUE: _RUNNING,
    Phase.SAFE: _RUNNING,
    Phase.CANCELLING: {
        Acquire: Rule.TAKE_OVER,
        RequestInterrupt: Rule.ASK,
        Renew: Rule.GRANT,
        Update: Rule.MOVE_OR_REFUSE,
        Work: Rule.SETTLING,
        Clear: Rule.REFUSE,
        Drop: Rule.GRANT,
        HandOver: Rule.REFUSE,
        Expire: Rule.GRANT,
    },
    Phase.CANCELLED: {
        Acquire: Rule.TAKE_OVER,
        RequestInterrupt: Rule.ASK,
        Renew: Rule.GRANT,
        Update: Rule.MOVE_OR_REFUSE,
        Work: Rule.REFUSE,
        Clear: Rule.GRANT,
        Drop: Rule.GRANT,
        HandOver: Rule.REFUSE,
        Expire: Rule.GRANT,
    },
}
"""One entry for every phase (None: no row) and command. A missing one is a `KeyError`."""

MOVES: Mapping[Phase, tuple[Phase, ...]] = {
    Phase.READY: (Phase.READY, Phase.UNKNOWN, Phase.CONTINUE, Phase.CANCELLING),
    Phase.UNKNOWN: (Phase.UNKNOWN, Phase.CONTINUE, Phase.SAFE, Phase.CANCELLING),
    Phase.CONTINUE: (Phase.CONTINUE, Phase.UNKNOWN, Phase.SAFE, Phase.CANCELLING),
    Phase.SAFE: (Phase.SAFE, Phase.UNKNOWN, Phase.CONTINUE, Phase.CANCELLING),
    Phase.CANCELLING: (Phase.CANCELLING, Phase.CANCELLED),
    Phase.CANCELLED: (),
}
"""Where `Update` may lead from each phase. No way back to `ready`: only an acquire starts there."""

HOLDS_STEP = (Phase.UNKNOWN, Phase.CANCELLING)
"""The phases in which a step may be open; in `unknown` one always is."""

# --- the decision ------------------------------------------------------------------------------------


def decide(row: Claim | None, facts: Facts, command: Command, now_ms: int) -> Decision:
    """What `command` makes of `row` at `now_ms`, the wall clock of its transaction, in milliseconds.

    Raises `AssertionError` for what only a bug can ask: a phase move that isn't in `MOVES`, a step that
    doesn't fit the phase, an execution id used twice.
    """
    assert row is None or row.session_id == _session_id(command), "the row is another session's"
    rule = TABLE[None if row is None else row.phase][type(command)]
    if isinstance(command, Acquire):
        return _acquire(row, facts, command, now_ms)
    if row is None:
        assert rule is Rule.GONE
        return _lost(
            command, f"the session has no claim any more; its latest generation is {facts.generation}"
        )
    if isinstance(command, RequestInterrupt):
        return _request_interrupt(row, command)
    why_lost = _why_lost(row, command.fence, now_ms)
    if why_lost is not None:
        return _lost(command, why_lost)
    if not _allows(rule, row, command):
        return _cancelling(row, command)
    return Granted(row=_effect(row, command, now_ms))


def is_free(row: Claim, now_ms: int) -> bool:
    """True if the claim has expired by this clock or was freed at once."""
    return row.expires_at <= max(now_ms, EXPIRED_AT_ONCE)  # freed is free on a clock before 1970, too


def _session_id(command: Command) -> str:
    if isinstance(command, Acquire | RequestInterrupt):
        return command.session_id
    return command.fence.session_id


def _execution_id(command: Command) -> str:
    if isinstance(command, Acquire | RequestInterrupt):
        return command.execution_id
    return command.fence.execution_id


# --- acquire and take over ---------------------------------------------------------------------------


def _acquire(row: Claim | None, facts: Facts, command: Acquire, now_ms: int) -> Decision:
    who = f"execution {command.execution_id} can't claim it"
    if facts.deleted:
        reason = f"Session {command.session_id} was deleted at generation {facts.generation}, so {who}."
        return Refused(reason=reason, error=SessionDeleted)
    if facts.quarantined:
        reason = f"Session {command.session_id} is in quarantine at generation {facts.generation}, so {who}."
        return Refused(reason=reason, error=SessionQuarantined)
    if row is None:
        return Granted(row=_inserted(facts, command, now_ms))
    if is_free(row, now_ms) or command.watched == Watched(execution_id=row.execution_id, version=row.version):
        return Granted(row=_taken_over(row, facts, command, now_ms), previous=row)
    return _held(row, command, now_ms)


def _inserted(facts: Facts, command: Acquire, now_ms: int) -> Claim:
    open_step = facts.open_message_id is not None
    assert not open_step or facts.assistant_seq >= 0, "an open step has a seq"
    return Claim(
        session_id=command.session_id,
        execution_id=command.execution_id,
        owner_id=command.owner_id,
        generation=facts.generation + 1,
        phase=Phase.UNKNOWN if open_step else Phase.READY,
        assistant_message_id=facts.open_message_id,
        assistant_seq=facts.assistant_seq,
        expires_at=now_ms + command.lease_ms,
        created_at=now_ms,
        version=1,
        interrupt_seq=None,
    )


def _taken_over(row: Claim, facts: Facts, command: Acquire, now_ms: int) -> Claim:
    assert row.execution_id != command.execution_id, "a take-over needs a fresh execution id"
    assert row.generation == facts.generation, "a row carries the latest generation of its session"
    return attrs.evolve(
        row,
        execution_id=command.execution_id,
        owner_id=command.owner_id,
        generation=facts.generation + 1,
        expires_at=now_ms + command.lease_ms,  # a new lease: a future-dated one may well be cut short
        version=row.version + 1,
    )


def _held(row: Claim, command: Acquire, now_ms: int) -> Refused:
    reason = (
        f"Session {row.session_id} is held by execution {row.execution_id} of owner {row.owner_id} until"
        f" {row.expires_at}; it is {now_ms}, {row.expires_at - now_ms} ms earlier,"
        f" so execution {command.execution_id} can't claim it"
    )
    if command.watched is not None:
        seen = command.watched
        reason += (
            f"; what was watched is version {seen.version} of execution {seen.execution_id},"
            f" and it stands at version {row.version}"
        )
    return Refused(reason=reason + ".", error=ClaimHeld)


def _request_interrupt(row: Claim, command: RequestInterrupt) -> Decision:
    if row.execution_id != command.execution_id:
        return _lost(command, f"execution {row.execution_id} holds it now, at generation {row.generation}")
    asked = command.seq if row.interrupt_seq is None else max(row.interrupt_seq, command.seq)
    return Granted(row=attrs.evolve(row, interrupt_seq=asked))


# --- the fence, the phase, the effect ----------------------------------------------------------------


def _why_lost(row: Claim, fence: Fence, now_ms: int) -> str | None:
    if row.execution_id != fence.execution_id:
        return (
            f"execution {row.execution_id} of owner {row.owner_id} holds it now,"
            f" at generation {row.generation} where this one had {fence.generation}"
        )
    if row.owner_id != fence.owner_id:
        return f"it belongs to owner {row.owner_id}, not to {fence.owner_id}"
    assert row.generation == fence.generation, "one execution has one generation"
    if row.expires_at <= EXPIRED_AT_ONCE:
        return f"it was freed by its holder (expires_at is {row.expires_at}, the clock reads {now_ms})"
    if is_free(row, now_ms):
        return f"it expired at {row.expires_at} and it is {now_ms}, {now_ms - row.expires_at} ms later"
    return None


def _lost(command: Command, why: str) -> Lost:
    return Lost(
        reason=f"Execution {_execution_id(command)} of session {_session_id(command)} lost its claim: {why}."
    )


def _allows(rule: Rule, row: Claim, command: Fenced) -> bool:
    unasked = row.interrupt_seq is None
    settling = isinstance(command, Work) and command.settling
    if rule in (Rule.MOVE, Rule.MOVE_OR_REFUSE):
        assert isinstance(command, Update)
        listed = command.phase in MOVES[row.phase]
        assert listed or rule is Rule.MOVE_OR_REFUSE, f"no move from {row.phase} to {command.phase}"
        return listed
    verdicts = {
        Rule.GRANT: True,
        Rule.UNASKED: unasked,
        Rule.UNASKED_OR_SETTLING: unasked or settling,
        Rule.SETTLING: settling,
        Rule.REFUSE: False,
    }
    return verdicts[rule]


def _cancelling(row: Claim, command: Fenced) -> Refused:
    asked = "no interrupt_seq" if row.interrupt_seq is None else f"interrupt_seq {row.interrupt_seq}"
    reason = (
        f"Execution {row.execution_id} of session {row.session_id} is being interrupted"
        f" (phase {row.phase}, {asked}, generation {row.generation}), so {_what(command)} is refused."
    )
    return Refused(reason=reason, error=ClaimCancelling)


def _what(command: Fenced) -> str:
    if isinstance(command, Work):
        return "settling work" if command.settling else "running work"
    if isinstance(command, Update):
        return f"the move to phase {command.phase}"
    return {Clear: "clearing", HandOver: "a hand-over"}[type(command)]


def _effect(row: Claim, command: Fenced, now_ms: int) -> Claim | None:
    match command:
        case Clear() | Drop():
            return None
        case HandOver():
            return attrs.evolve(row, expires_at=HANDED_OVER, version=row.version + 1)
        case Expire():
            return attrs.evolve(row, expires_at=EXPIRED_AT_ONCE, version=row.version + 1)
        case Update():
            return _updated(_renewed(row, command.lease_ms, now_ms), command)
        case Renew() | Work():
            return _renewed(row, command.lease_ms, now_ms)


def _renewed(row: Claim, lease_ms: int, now_ms: int) -> Claim:
    return attrs.evolve(row, expires_at=max(row.expires_at, now_ms + lease_ms), version=row.version + 1)


def _updated(row: Claim, command: Update) -> Claim:
    message_id, seq = row.assistant_message_id, row.assistant_seq
    if isinstance(command.step, Open):
        assert command.phase is Phase.UNKNOWN, f"a step opens in phase unknown, not {command.phase}"
        assert command.step.seq > seq, f"step seq {command.step.seq} doesn't follow {seq}"
        message_id, seq = command.step.message_id, command.step.seq
    elif isinstance(command.step, Detach):
        message_id = None
    assert message_id is None or command.phase in HOLDS_STEP, f"phase {command.phase} holds no open step"
    assert message_id is not None or command.phase is not Phase.UNKNOWN, "phase unknown holds an open step"
    return attrs.evolve(row, phase=command.phase, assistant_message_id=message_id, assistant_seq=seq)
