"""What may be asked of a session's claim, and what may be answered. The rules are in `engine.claims`."""

from __future__ import annotations

import typing

import attrs

from engine.errors import ClaimLost, FencepostError
from engine.records import Claim, Fence, Phase

# --- commands ----------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Watched:
    """What a node saw unchanged for a whole lease plus the maximum skew on its own monotonic clock."""

    execution_id: str
    version: int


@attrs.frozen(kw_only=True)
class Acquire:
    """Claim the session for a fresh execution: insert the row, or take over one that is free or `watched`."""

    session_id: str
    execution_id: str
    owner_id: str
    lease_ms: int
    watched: Watched | None = None


@attrs.frozen(kw_only=True)
class Renew:
    """Prove life, in any phase."""

    fence: Fence
    lease_ms: int


@attrs.frozen(kw_only=True)
class Keep:
    """Leave the open step as it is."""


@attrs.frozen(kw_only=True)
class Detach:
    """The step is settled, or there was none."""


@attrs.frozen(kw_only=True)
class Open:
    """A step starts: its message id, and the seq of its `step.started`."""

    message_id: str
    seq: int


Step = Keep | Detach | Open


@attrs.frozen(kw_only=True)
class Update:
    """Move to `phase`, say what becomes of the open step, and renew."""

    fence: Fence
    phase: Phase
    step: Step
    lease_ms: int


@attrs.frozen(kw_only=True)
class Work:
    """What every fenced transaction begins with: renew, and check that this kind of work is allowed."""

    fence: Fence
    lease_ms: int
    settling: bool


@attrs.frozen(kw_only=True)
class RequestInterrupt:
    """Ask the execution that was seen to stop; inputs admitted up to `seq` will be parked. Unfenced."""

    session_id: str
    execution_id: str
    seq: int


@attrs.frozen(kw_only=True)
class Clear:
    """Delete the row: all is settled and logged."""

    fence: Fence


@attrs.frozen(kw_only=True)
class Drop:
    """Delete the row in whatever phase, in the transaction that quarantines its session."""

    fence: Fence


@attrs.frozen(kw_only=True)
class HandOver:
    """Free the claim at once, in good order."""

    fence: Fence


@attrs.frozen(kw_only=True)
class Expire:
    """Free the claim at once, because its holder couldn't finish."""

    fence: Fence


Fenced = Renew | Update | Work | Clear | Drop | HandOver | Expire
Command = Acquire | RequestInterrupt | Fenced

COMMANDS: tuple[type[Command], ...] = typing.get_args(Command)

# --- facts and decisions -----------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Facts:
    """What the transaction reads beside the row; only `Acquire` looks at it.

    `generation` is the session's latest, 0 if it was never claimed. `assistant_seq` is the seq of its latest
    `step.started`, -1 if there is none; `open_message_id` names that step if the log shows no terminal for
    it, which happens without a claim only after a quarantine was released.
    """

    deleted: bool = False
    quarantined: bool = False
    generation: int
    assistant_seq: int = -1
    open_message_id: str | None = None


@attrs.frozen(kw_only=True)
class Granted:
    """The row to write, None to delete it. `previous` is the row that was taken over, if one was."""

    row: Claim | None
    previous: Claim | None = None


@attrs.frozen(kw_only=True)
class Lost:
    """The command's execution doesn't hold the claim any more; it writes nothing from now on."""

    reason: str


@attrs.frozen(kw_only=True)
class Refused:
    """The command isn't allowed as things stand; `error` is what its caller sees."""

    reason: str
    error: type[FencepostError]


Decision = Granted | Lost | Refused


def granted(decision: Decision) -> Granted:
    """The grant, or the error: raises `ClaimLost`, `ClaimHeld`, `ClaimCancelling`, `SessionDeleted` or
    `SessionQuarantined`, with a message that names session and execution."""
    if isinstance(decision, Lost):
        raise ClaimLost(decision.reason)
    if isinstance(decision, Refused):
        raise decision.error(decision.reason)
    return decision
