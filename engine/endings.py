"""How an execution ended: a closed union of frozen records."""

from __future__ import annotations

import attrs

from engine.records import ErrorInfo


@attrs.frozen
class Succeeded:
    """Nothing was left to do; the claim is cleared."""


@attrs.frozen
class FailedWith:
    """The execution failed for good; pending input is parked, the claim is cleared."""

    error: ErrorInfo


@attrs.frozen
class Interrupted:
    """A user stopped it; the log is whole, pending input is parked, the claim is cleared."""


@attrs.frozen
class HandedOver:
    """A shutdown: the turn goes on under the next claim."""


@attrs.frozen
class Lost:
    """The claim was lost: nothing was written since, and the successor decides."""

    reason: str


@attrs.frozen
class Quarantined:
    """A defect: the session isn't executed again until it is released or discarded."""

    reason: str


@attrs.frozen
class Unsettled:
    """The store failed, so the claim was left (expired, where that could be written) for recovery."""

    reason: str


Ending = Succeeded | FailedWith | Interrupted | HandedOver | Lost | Quarantined | Unsettled
