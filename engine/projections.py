"""The projectors: what each event does to the tables `session` and `input`, inside its own transaction.

The tables only ever say what the log says; `verify` folds the log again and compares.
"""

from __future__ import annotations

import attrs

from engine import events as ev
from engine.ports import Transaction
from engine.records import InputRow, SessionRow

STATUS_AFTER: dict[type[ev.Event], str] = {
    ev.ExecutionStarted: "running",
    ev.ExecutionSucceeded: "idle",
    ev.ExecutionFailed: "failed",
    ev.ExecutionInterrupted: "interrupted",
    ev.ExecutionHandedOver: "handed_over",
}


def project(tx: Transaction, stored: ev.Stored) -> None:
    """Apply one event to the projections."""
    event = stored.event
    match event:
        case ev.SessionCreated():
            tx.put_session(session_row(event, stored.created))
        case ev.SessionRenamed():
            tx.put_session(attrs.evolve(_session(tx, event), title=event.title))
        case ev.SessionDeletedEvent():
            tx.put_session(attrs.evolve(_session(tx, event), deleted=True))
        case ev.InputAdmitted():
            tx.put_input(input_row(event, stored.seq))
        case ev.InputDeliveryChanged():
            tx.put_input(attrs.evolve(_input(tx, event.input_id), delivery=event.delivery))
        case ev.InputCancelled():
            tx.put_input(attrs.evolve(_input(tx, event.input_id), state="cancelled", parked=False))
        case ev.InputPromoted():
            tx.put_input(attrs.evolve(_input(tx, event.input_id), state="promoted", parked=False))
        case ev.InputParked():
            tx.park_inputs(event.session_id, event.through)
        case ev.InputResumed():
            tx.unpark_inputs(event.session_id, event.through)
        case _ if type(event) in STATUS_AFTER:
            _project_execution(tx, event)
        case _:
            pass


def _project_execution(tx: Transaction, event: ev.Event) -> None:
    tx.put_session(attrs.evolve(_session(tx, event), status=STATUS_AFTER[type(event)]))
    match event:
        case ev.ExecutionInterrupted(parked_through=through):
            tx.park_inputs(event.session_id, through)
        case ev.ExecutionFailed(parked_through=int() as through):
            tx.park_inputs(event.session_id, through)


def session_row(event: ev.SessionCreated, created: int) -> SessionRow:
    """The row of a session that was just created."""
    return SessionRow(
        session_id=event.session_id,
        title=event.title,
        location=event.location,
        model=event.model,
        agent=event.agent,
        system=event.system,
        created=created,
        status="idle",
        deleted=False,
    )


def input_row(event: ev.InputAdmitted, seq: int) -> InputRow:
    """The row of an input that was just admitted."""
    return InputRow(
        input_id=event.input_id,
        session_id=event.session_id,
        kind=event.kind,
        delivery=event.delivery,
        payload=event.payload,
        admitted_seq=seq,
        state="pending",
        parked=False,
    )


def _session(tx: Transaction, event: ev.Event) -> SessionRow:
    row = tx.session(event.session_id)
    assert row is not None, f"{event.type} for {event.session_id}, which was never created"
    return row


def _input(tx: Transaction, input_id: str) -> InputRow:
    row = tx.input(input_id)
    assert row is not None, f"input {input_id} was never admitted"
    assert row.state == "pending", f"input {input_id} is {row.state} already"
    return row
