"""What clients write: sessions and their input. Unfenced, idempotent, and never touching a claim."""

from __future__ import annotations

from engine import events as ev
from engine.codec import clean_json, clean_text, encode_json
from engine.errors import EventTooLarge, InboxFull, InputConflict, SessionDeleted
from engine.limits import EngineConfig
from engine.plan import Plan
from engine.ports import Transaction
from engine.records import JSON, Admission, SessionRow
from engine.transactions import session_of


def live_session(tx: Transaction, session_id: str) -> SessionRow:
    """The row of a session that accepts writes. Raises `SessionNotFound` or `SessionDeleted`."""
    row = session_of(tx, session_id)
    if row.deleted:
        raise SessionDeleted(f"session {session_id} was deleted")
    return row


def admit(tx: Transaction, wanted: ev.InputAdmitted, config: EngineConfig) -> Plan[Admission]:
    """Admit an input once. The same id again returns the first admission and changes nothing.

    A new admission also unparks what an interrupt or a failure had parked: the person is back. Raises
    `InputConflict`, `InboxFull`, `EventTooLarge`, `SessionNotFound`, `SessionDeleted`.
    """
    session_id = wanted.session_id
    live_session(tx, session_id)
    first = tx.input(wanted.input_id)
    if first is not None:
        if (first.session_id, first.kind) != (session_id, wanted.kind):
            raise InputConflict(
                f"input {wanted.input_id} was admitted to {first.session_id} as {first.kind}; use a fresh id"
            )
        return Plan(
            value=Admission(
                input_id=first.input_id, session_id=session_id, seq=first.admitted_seq, created=False
            )
        )
    pending = tx.pending_count(session_id)
    if pending >= config.inbox_pending_max:
        raise InboxFull(f"{pending} inputs of {session_id} wait already (inbox_pending_max); try again later")
    latest = tx.latest_seq(session_id)
    unparked: list[ev.Event] = []
    if tx.parked_count(session_id):
        unparked.append(ev.InputResumed(session_id=session_id, through=latest))
    seq = latest + 1 + len(unparked)
    admission = Admission(input_id=wanted.input_id, session_id=session_id, seq=seq, created=True)
    return Plan(events=[*unparked, wanted], value=admission)


def resume(tx: Transaction, session_id: str) -> Plan[bool]:
    """Unpark everything that waits for a person. False if nothing was parked."""
    live_session(tx, session_id)
    if not tx.parked_count(session_id):
        return Plan(value=False)
    through = tx.latest_seq(session_id)
    return Plan(events=[ev.InputResumed(session_id=session_id, through=through)], value=True)


def cancel_input(tx: Transaction, session_id: str, input_id: str) -> Plan[bool]:
    """Cancel an input that still waits. False if it was promoted or cancelled before."""
    live_session(tx, session_id)
    row = tx.input(input_id)
    if row is None or row.session_id != session_id:
        raise InputConflict(f"session {session_id} has no input {input_id}")
    if row.state != "pending":
        return Plan(value=False)
    return Plan(events=[ev.InputCancelled(session_id=session_id, input_id=input_id)], value=True)


def change_delivery(tx: Transaction, session_id: str, input_id: str, delivery: ev.Delivery) -> Plan[bool]:
    """Re-classify an input that still waits. False if it is no longer pending, or was so already."""
    live_session(tx, session_id)
    row = tx.input(input_id)
    if row is None or row.session_id != session_id:
        raise InputConflict(f"session {session_id} has no input {input_id}")
    if row.state != "pending" or row.delivery == delivery:
        return Plan(value=False)
    changed = ev.InputDeliveryChanged(session_id=session_id, input_id=input_id, delivery=delivery)
    return Plan(events=[changed], value=True)


def user_input(
    session_id: str,
    content: JSON,
    *,
    input_id: str,
    delivery: ev.Delivery,
    config: EngineConfig,
) -> ev.InputAdmitted:
    """The event that admits a user's content; text is shorthand for `{"text": …}`.

    Raises `EventTooLarge` past `input_bytes_max`, `EventError` for what JSON can't hold.
    """
    payload = {"text": content} if isinstance(content, str) else content
    cleaned = clean_json(payload)
    size = len(encode_json(cleaned))
    if size > config.input_bytes_max:
        raise EventTooLarge(f"the input takes {size} bytes, input_bytes_max is {config.input_bytes_max}")
    return ev.InputAdmitted(
        session_id=session_id,
        input_id=clean_text(input_id),
        kind="user",
        delivery=delivery,
        payload=cleaned,
    )
