"""The kinds of values in a scenario file: names, times, event types, and lists of known words."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Literal

from engine import errors
from engine.events import REGISTRY
from engine.providers.script import Reply, decode_reply
from engine.records import InterruptAnswer, Phase
from engine.shape import BAD, HIDDEN, Among, Bound, Decoder, Path, Via, Wording, kind_of, show

END = "end"
"""Stands where the name of an action or fault may stand: when the run is over."""

Name = Annotated[str, Wording("[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", "a name of letters, digits, _ . -")]
NodeOrAll = Annotated[
    str, Wording(r"\*|[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", 'a name of letters, digits, _ . -, or "*" for all')
]
Words = Annotated[str, Wording(r"(?s).*\S.*", "a sentence")]
Seconds = Annotated[float, Bound(0)]
Millis = Annotated[int, Bound(0)]
Count = Annotated[int, Bound(0)]
AtLeastOne = Annotated[int, Bound(1)]
MonotonicPpm = Annotated[int, Bound(-999_999)]
"""A clock that runs at -1 000 000 ppm stands still, and one below that would go back."""

Line = Annotated[int, HIDDEN]

EVENT_TYPES = tuple(kind for (kind, _), cls in REGISTRY.items() if cls.durable)
LIVE_TYPES = tuple(kind for (kind, _), cls in REGISTRY.items() if not cls.durable)
EventType = Annotated[
    str,
    Among(
        "event type",
        known=EVENT_TYPES,
        unfit=LIVE_TYPES,
        because="is live: it is never in the log, so nothing can be tied to it",
    ),
]

ERROR_NAMES = tuple(
    name
    for name, cls in vars(errors).items()
    if inspect.isclass(cls) and issubclass(cls, errors.FencepostError)
)
ErrorName = Annotated[str, Among("error class", ERROR_NAMES)]

STORE_ERRORS = ("StoreBusy", "StoreFull", "StoreIOError", "StoreInterrupted", "StoreReadOnly")
StoreErrorName = Annotated[str, Among("store error", STORE_ERRORS)]

DONE = "done"
"""The answer of an action that returned and has nothing else to say."""
ALL_NODES = "*"
"""Stands where a node's name may stand: every node, at one moment."""

STOPPED = "stopped"
"""The answer of an action whose node stopped before it returned."""
INTERRUPT_ANSWERS = tuple(str(answer) for answer in InterruptAnswer)
Answer = Annotated[str, Among("answer", (DONE, STOPPED, *INTERRUPT_ANSWERS, *ERROR_NAMES))]

PhaseName = Annotated[str, Among("phase", tuple(str(phase) for phase in Phase))]
Window = Literal["before_commit", "after_commit", "notify", "after_notify"]
Status = Literal["idle", "running", "parked", "failed", "interrupted", "handed_over", "quarantined"]
Delivery = Literal["steer", "queue"]
Mangling = Literal["drop", "repeat", "swap", "nulls", "foreign"]
Unfit = Literal["object", "nan", "number", "deep"]
ToolAsks = Literal["send", "interrupt", "resume", "delete"]


def _replies(decoder: Decoder, raw: Any, path: Path) -> Any:
    if not isinstance(raw, list):
        return decoder.flaw(path, f"must be a list of replies, not {kind_of(raw)} ({show(raw)})")
    if not raw:
        return decoder.flaw(path, "is empty: leave it out for a plain answer, or give at least one reply")
    made = [decode_reply(decoder, items, (*path, nth)) for nth, items in enumerate(raw)]
    return BAD if any(one is BAD for one in made) else tuple(made)


Replies = Annotated[tuple[Reply, ...], Via(_replies)]
