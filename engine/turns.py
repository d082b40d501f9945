"""Waiting for the turn of one input, wherever it is executed: the log is the only witness asked."""

from __future__ import annotations

import functools
from typing import Literal

import attrs

from engine import events as ev
from engine.errors import InputConflict, SessionQuarantined
from engine.history import History
from engine.log import Log
from engine.ports import Reader
from engine.records import ErrorInfo, Message

How = Literal["succeeded", "failed", "interrupted", "cancelled", "parked", "deleted"]


@attrs.frozen(kw_only=True)
class TurnResult:
    """How the turn of an input ended, with what the model said in it."""

    session_id: str
    input_id: str
    how: How
    messages: tuple[Message, ...]
    error: ErrorInfo | None = None

    @property
    def text(self) -> str:
        """The text of the turn's last message, parts joined."""
        for message in reversed(self.messages):
            texts = [part["text"] for part in message.parts if part["kind"] == "text"]
            if message.role == "assistant" and texts:
                return "".join(texts)
        return ""


class _Watch:
    """Follows the log until the turn of `input_id` is over."""

    def __init__(self, session_id: str, input_id: str) -> None:
        self.session_id = session_id
        self.input_id = input_id
        self.history = History()
        self.promoted = False
        self.admitted: int | None = None
        self.parked: TurnResult | None = None  #: its result if it waits for a person now
        self._before: set[str] = set()

    def see(self, stored: ev.Stored) -> TurnResult | None:
        """The result, once `stored` ends the turn."""
        self.history.advance([stored])
        event = stored.event
        match event:
            case ev.InputAdmitted(input_id=self.input_id):
                self.admitted = stored.seq
            case ev.InputPromoted(input_id=self.input_id):
                self._before = {message.message_id for message in self.history.messages()}
                self.promoted = True
            case ev.InputCancelled(input_id=self.input_id):
                return self.result("cancelled")
            case ev.SessionDeletedEvent():
                return self.result("deleted")
            case ev.ExecutionSucceeded() if self.promoted:
                return self.result("succeeded")
            case ev.ExecutionInterrupted() if self.promoted:
                return self.result("interrupted")
            case ev.ExecutionFailed() if self.promoted:
                return self.result("failed", event.error)
            case ev.ExecutionFailed(parked_through=int() as through):
                self._park(through, event.error)
            case ev.ExecutionInterrupted(parked_through=through) | ev.InputParked(through=through):
                self._park(through, None)
            case ev.InputResumed(through=through) if self._reached_by(through):
                self.parked = None
        return None

    def _park(self, through: int, error: ErrorInfo | None) -> None:
        if self._reached_by(through):
            self.parked = self.result("parked", error)

    def _reached_by(self, through: int) -> bool:
        return not self.promoted and self.admitted is not None and self.admitted <= through

    def result(self, how: How, error: ErrorInfo | None = None) -> TurnResult:
        messages = tuple(m for m in self.history.messages() if m.message_id not in self._before)
        return TurnResult(
            session_id=self.session_id,
            input_id=self.input_id,
            how=how,
            messages=messages if self.promoted else (),
            error=error,
        )


async def wait_turn(log: Log, session_id: str, input_id: str) -> TurnResult:
    """Wait until the input's turn ended: by its execution's end, or because the next queued input began.

    An input that waits for a person is answered `parked`, with the error that parked it if there was one;
    wait again once it was resumed. Raises `SessionNotFound`, `InputConflict` for an input it doesn't have,
    `SessionQuarantined`, or a `StoreError`.
    """
    watch, synced = _Watch(session_id, input_id), False
    refuse = functools.partial(_refuse_quarantined, session_id=session_id)
    async with log.read(session_id, follow=True, look=refuse) as reader:
        async for item in reader:
            if not isinstance(item, ev.Stored):
                synced = True
                if watch.admitted is None:
                    raise InputConflict(f"session {session_id} has no input {input_id}")
            elif watch.promoted and await _begins_another_turn(log, item.event):
                return watch.result("succeeded")
            else:
                result = watch.see(item)
                if result is not None:
                    return result
            if synced and watch.parked is not None:
                return watch.parked
    return watch.result("deleted")


async def _begins_another_turn(log: Log, event: ev.Event) -> bool:
    """Steers join a running turn; a queued input that is promoted begins the next one."""
    if not isinstance(event, ev.InputPromoted):
        return False
    input_id = event.input_id

    def work(tx: Reader) -> bool:
        row = tx.input(input_id)
        return row is not None and row.delivery == "queue"

    return await log.store.read(work)


def _refuse_quarantined(tx: Reader, session_id: str) -> None:
    """A quarantine writes no event, so it is looked for whenever there is nothing new to read."""
    row = tx.recovery(session_id)
    if row is not None and row.recovery_error is not None:
        raise SessionQuarantined(f"session {session_id} is in quarantine: {row.recovery_error}")
