"""Logs for the tests of `verify`: written by hand into a real in-memory database, or drawn by Hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from hypothesis import strategies as st

from engine import events as ev
from engine.limits import EngineConfig
from engine.log import row_of
from engine.projections import project
from engine.records import Claim, ErrorInfo, Phase, RecoveryRow, Usage
from engine.store import SqliteTransaction, create_memory
from engine.verify import CHECKS, SessionRecord, Unreadable, read_session

SES = "ses_1"
ERROR = ErrorInfo(type="transport", message="broken", retryable=True)
CONFIG = EngineConfig()


@attrs.define
class Book:
    """A log in the making. `by` is the execution that writes; clients' events carry none."""

    events: list[ev.Stored] = attrs.field(factory=list)
    by: str | None = None

    @property
    def latest(self) -> int:
        return len(self.events) - 1

    def add(self, cls: type[ev.Event], **fields: Any) -> int:
        """Append an event; returns its seq."""
        by_client = cls.type.startswith(("session.", "input.")) and cls is not ev.InputPromoted
        self.events.append(
            ev.Stored(
                event_id=f"evt_{len(self.events)}",
                seq=len(self.events),
                created=1_000 + len(self.events),
                execution_id=None if by_client else self.by,
                event=cls(session_id=SES, **fields),
            )
        )
        return self.latest

    def create(self) -> Book:
        self.add(ev.SessionCreated, title="t", location=None, model="m", agent="a", system="s")
        return self

    def admit(self, input_id: str, delivery: str = "steer") -> int:
        return self.add(
            ev.InputAdmitted, input_id=input_id, kind="user", delivery=delivery, payload={"text": input_id}
        )

    def start(self, execution_id: str, generation: int, previous: str | None = None) -> int:
        self.by = execution_id
        return self.add(
            ev.ExecutionStarted, generation=generation, owner_id="own_1", previous_execution_id=previous
        )

    def step(self, message_id: str, cls: type[ev.Event], **fields: Any) -> int:
        return self.add(cls, assistant_message_id=message_id, **fields)

    def open_step(self, message_id: str, attempt: int = 1) -> int:
        return self.step(message_id, ev.StepStarted, agent="a", model="m", attempt=attempt)

    def text(self, message_id: str, ordinal: int = 0) -> int:
        self.step(message_id, ev.TextStarted, ordinal=ordinal)
        return self.step(message_id, ev.TextEnded, ordinal=ordinal, text="said")

    def call(self, message_id: str, call_id: str = "c1") -> int:
        self.step(message_id, ev.ToolInputStarted, call_id=call_id, name="tool")
        self.step(message_id, ev.ToolInputEnded, call_id=call_id, text="{}")
        return self.step(message_id, ev.ToolCalled, call_id=call_id, name="tool", input={})

    def end_step(self, message_id: str) -> int:
        return self.step(message_id, ev.StepEnded, finish="stop", usage=Usage())

    def interrupt_step(self, message_id: str, cause: str = "unknown") -> int:
        return self.step(message_id, ev.StepInterrupted, cause=cause, error=ERROR)

    def answer(self, message_id: str, attempt: int = 1) -> int:
        """A whole step that says something."""
        self.open_step(message_id, attempt)
        self.text(message_id)
        return self.end_step(message_id)


def store(events: Sequence[ev.Stored]) -> SqliteTransaction:
    """A database that holds the events, its projections made by the engine's own projectors."""
    connection = create_memory()
    tx = SqliteTransaction(connection, now_ms=0)
    generation = 0
    for item in events:
        project(tx, item)
        tx.append_event(row_of(item, CONFIG))
        if isinstance(item.event, ev.ExecutionStarted):
            generation = item.event.generation
    tx.put_generation(SES, generation)
    return tx


def record_of(events: Sequence[ev.Stored], **changes: Any) -> SessionRecord:
    """The record of a legal log, as it is read from a database."""
    return attrs.evolve(read_session(store(events), SES), **changes)


def bare(events: Sequence[ev.Stored], **changes: Any) -> SessionRecord:
    """A record of any log, legal or not, without the tables beside it."""
    return SessionRecord(
        session_id=SES,
        events=tuple(events),
        session=None,
        inputs=(),
        claim=None,
        recovery=None,
        **changes,
    )


# --- records and what is found in them -------------------------------------------------------------

Found = list[tuple[int | None, str]]


def broken(invariant: str, record: SessionRecord) -> Found:
    """What one check finds: seq and sentence."""
    found = list(CHECKS[invariant](record))
    assert all((breach.invariant, breach.session_id) == (invariant, SES) for breach in found)
    return [(breach.seq, breach.sentence) for breach in found]


def running() -> Book:
    """A session whose execution `exe_1` has promoted its input and opened nothing."""
    book = Book().create()
    book.admit("inp_a")
    book.start("exe_1", 1)
    book.add(ev.InputPromoted, input_id="inp_a")
    return book


def claim(**changes: Any) -> Claim:
    """The claim of `exe_1`, with no step open."""
    row = Claim(
        session_id=SES,
        execution_id="exe_1",
        owner_id="own_1",
        generation=1,
        phase=Phase.CONTINUE,
        assistant_message_id=None,
        assistant_seq=-1,
        expires_at=9_000,
        created_at=0,
        version=1,
        interrupt_seq=None,
    )
    return attrs.evolve(row, **changes)


def recovery(error: str | None) -> RecoveryRow:
    return RecoveryRow(
        session_id=SES,
        execution_id="exe_1",
        previous_execution_id=None,
        continuation_message_id=None,
        wake_pending=True,
        takeovers=0,
        recovery_error=error,
    )


def unreadable(seq: int, type: str = "text.started", execution_id: str | None = "exe_1") -> Unreadable:
    return Unreadable(
        event_id=f"evt_{seq}",
        session_id=SES,
        seq=seq,
        type=type,
        version=9,
        created=0,
        execution_id=execution_id,
        reason=f"unknown event {type} version 9",
    )


def claimed(book: Book, **changes: Any) -> SessionRecord:
    """The bare record of a log whose claim is `exe_1`'s, with changes."""
    return attrs.evolve(bare(book.events), claim=claim(**changes))


# --- one long legal log ------------------------------------------------------------------------------


def good() -> Book:
    """A session that saw every kind of event, and rests."""
    book = Book().create()
    book.admit("inp_a")
    book.start("exe_1", 1)
    book.add(ev.InputPromoted, input_id="inp_a")
    _step_with_tools(book)
    book.admit("inp_b", "queue")
    book.add(ev.InputDeliveryChanged, input_id="inp_b", delivery="steer")
    book.end_step("msg_1")
    book.add(ev.InputPromoted, input_id="inp_b")
    book.open_step("msg_2")
    book.step("msg_2", ev.StepFailed, error=ERROR)
    book.add(ev.RetryScheduled, attempt=2, at=5_000, error=ERROR)
    book.answer("msg_3", 2)
    book.add(ev.ExecutionSucceeded)
    _handed_over_and_recovered(book)
    _parked_and_resumed(book)
    book.add(ev.SessionRenamed, title="renamed")
    return book


def _step_with_tools(book: Book) -> None:
    book.open_step("msg_1")
    book.step("msg_1", ev.ReasoningStarted, ordinal=0)
    book.step("msg_1", ev.ReasoningEnded, ordinal=0, text="hm")
    book.text("msg_1", 1)
    book.call("msg_1", "c1")
    book.call("msg_1", "c2")
    book.step("msg_1", ev.StepStreamed)
    book.step("msg_1", ev.ToolSucceeded, call_id="c2", output=1)
    book.step("msg_1", ev.ToolFailed, call_id="c1", error=ERROR, outcome="failed")


def _handed_over_and_recovered(book: Book) -> None:
    book.admit("inp_c")
    book.start("exe_2", 2)
    book.add(ev.InputPromoted, input_id="inp_c")
    book.open_step("msg_4")
    book.interrupt_step("msg_4", "shutdown")
    book.add(ev.ExecutionHandedOver)
    book.start("exe_3", 3, "exe_2")
    book.open_step("msg_5")
    book.step("msg_5", ev.TextStarted, ordinal=0)
    book.start("exe_4", 5, "exe_3")
    book.step("msg_5", ev.TextEnded, ordinal=0, text="", truncated=True)
    book.interrupt_step("msg_5")
    book.add(ev.Synthetic, text="note", description="outcome unknown")


def _parked_and_resumed(book: Book) -> None:
    book.open_step("msg_6")
    through = book.admit("inp_d")
    book.admit("inp_e")
    book.interrupt_step("msg_6", "user")
    book.add(ev.ExecutionInterrupted, parked_through=through)
    book.add(ev.InputCancelled, input_id="inp_d")
    book.add(ev.InputParked, through=book.latest)
    book.add(ev.InputResumed, through=book.latest)
    book.admit("inp_f", "queue")
    book.start("exe_5", 6)
    book.add(ev.InputPromoted, input_id="inp_e")
    book.open_step("msg_7")
    book.step("msg_7", ev.StepFailed, error=ERROR)
    book.add(ev.ExecutionFailed, error=ERROR, parked_through=book.latest)


# --- drawn logs --------------------------------------------------------------------------------------


@st.composite
def books(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Book:
    """A legal log at rest: some executions, each of some steps, each ended in one of the possible ways."""
    book, lost, steps = Book().create(), None, 0
    count = draw(st.integers(1, 4))
    for number in range(1, count + 1):
        input_id = f"inp_{number}"
        if lost is None:
            book.admit(input_id)
        book.start(f"exe_{number}", number, lost)
        if lost is None:
            book.add(ev.InputPromoted, input_id=input_id)
        for _ in range(draw(st.integers(0, 2))):
            steps += 1
            _draw_step(draw, book, f"msg_{steps}")
        ends = ["succeeded", "failed", "interrupted"] + (["handed_over", "lost"] if number < count else [])
        lost = _end(book, draw(st.sampled_from(ends)), number)
    return book


def _draw_step(draw: Callable[[st.SearchStrategy[Any]], Any], book: Book, message_id: str) -> None:
    book.open_step(message_id)
    for ordinal in range(draw(st.integers(0, 2))):
        book.text(message_id, ordinal)
    calls = [f"c{number}" for number in range(draw(st.integers(0, 2)))]
    for call_id in calls:
        book.call(message_id, call_id)
    for call_id in draw(st.permutations(calls)):
        book.step(message_id, ev.ToolSucceeded, call_id=call_id, output=None)
    if draw(st.booleans()):
        book.end_step(message_id)
    else:
        book.interrupt_step(message_id)


def _end(book: Book, how: str, number: int) -> str | None:
    match how:
        case "succeeded":
            book.add(ev.ExecutionSucceeded)
        case "failed":
            book.add(ev.ExecutionFailed, error=ERROR)
        case "interrupted":
            book.add(ev.ExecutionInterrupted, parked_through=book.latest)
        case "handed_over":
            book.add(ev.ExecutionHandedOver)
    return f"exe_{number}" if how in ("handed_over", "lost") else None
