"""What clients did and what befell the nodes, each tied to the event of the log that came before it."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

from engine import events as ev
from engine.events import Stored
from sim.from_log.redact import Redaction
from sim.from_log.replies import payload_text
from sim.scenario import Action, After, Fault, OnEvent

NODE, SESSION = "a", "s"
RESTART_S = 2.0

CUT_OFF = ("not-run", "interrupted")
"""The types of tool errors that a settlement writes."""


class Moments:
    """The actions and faults that bring a log's course about again."""

    def __init__(self, log: Sequence[Stored], redaction: Redaction) -> None:
        self._log = log
        self._redaction = redaction
        seen: collections.Counter[str] = collections.Counter()
        self._nth: list[int] = []
        for stored in log:
            seen[stored.type] += 1
            self._nth.append(seen[stored.type])
        self.actions: list[Action] = []
        self.faults: list[Fault] = []
        self._inputs: dict[str, str] = {}
        for place, stored in enumerate(log):
            self.actions += self._client(place, stored.event)
            self.actions += self._stop(place, stored.event)
            self.faults += self._crash(place, stored)

    def _when(self, place: int) -> dict[str, float | OnEvent]:
        """The trigger of what came right after the event at this place."""
        if place <= 0:
            return {"at_s": 0.0}  # the session is there from the start, so nothing can wait for its beginning
        return {"when": OnEvent(event=self._log[place].type, nth=self._nth[place])}

    def _act(self, do: str, place: int, **keys: object) -> Action:
        given = {"session": SESSION, **keys} if do != "shutdown" else keys
        return Action(do=do, node=NODE, **self._when(place), **given)  # type: ignore[arg-type]

    # --- clients -------------------------------------------------------------------------------------

    def _client(self, place: int, event: ev.Event) -> Iterator[Action]:
        before = place - 1
        match event:
            case ev.InputAdmitted(input_id=input_id, payload=payload, delivery=delivery):
                name = self._inputs[input_id] = f"in{len(self._inputs) + 1}"
                text = self._redaction.text(payload_text(payload))
                yield self._act("send", before, text=text, delivery=delivery, input=name)
            case ev.InputCancelled(input_id=input_id) if input_id in self._inputs:
                yield self._act("cancel_input", before, input=self._inputs[input_id])
            case ev.InputParked():
                yield self._act("interrupt", before)
            case ev.InputResumed():
                yield self._act("resume", before)
            case ev.SessionDeletedEvent():
                yield self._act("delete", before)

    def _stop(self, place: int, event: ev.Event) -> Iterator[Action]:
        """What ended an execution from outside, before anything of its settlement was written."""
        match event:
            case ev.ExecutionInterrupted():
                yield self._act("interrupt", self._before_settlement(place))
            case ev.ExecutionHandedOver():
                name = f"stop{place}"
                yield self._act("shutdown", self._before_settlement(place), as_=name)
                yield Action(do="start", node=NODE, when=After(after=name, delay_s=RESTART_S))

    def _before_settlement(self, place: int) -> int:
        before = place - 1
        while before > 0 and _settles(self._log[before].event):
            before -= 1
        over = self._log[before].event
        if isinstance(over, ev.StepEnded | ev.StepFailed) and isinstance(
            self._log[place].event, ev.ExecutionHandedOver
        ):
            # a shutdown waits for the open step, so it was asked for while that was under way
            return next(at for at in range(before, -1, -1) if _starts(self._log[at].event, over))
        return before

    # --- nodes ---------------------------------------------------------------------------------------

    def _crash(self, place: int, stored: Stored) -> Iterator[Fault]:
        """A claim was taken over: its holder had stopped after the last thing it wrote."""
        event = stored.event
        if not isinstance(event, ev.ExecutionStarted) or event.previous_execution_id is None:
            return
        own = [at for at in range(place) if self._log[at].execution_id == event.previous_execution_id]
        if not own or isinstance(self._log[own[-1]].event, ev.ExecutionHandedOver):
            return
        yield Fault(kind="power_cut", node=NODE, for_s=RESTART_S, **self._when(own[-1]))  # type: ignore[arg-type]


def _starts(event: ev.Event, over: ev.StepEvent) -> bool:
    return isinstance(event, ev.StepStarted) and event.assistant_message_id == over.assistant_message_id


def _settles(event: ev.Event) -> bool:
    match event:
        case ev.TextEnded() | ev.ReasoningEnded() | ev.ToolInputEnded():
            return event.truncated
        case ev.ToolFailed(error=error):
            return error.type in CUT_OFF
        case ev.StepInterrupted() | ev.Synthetic():
            return True
        case _:
            return False
