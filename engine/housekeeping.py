"""What keeps a database in order beside execution: lifting a quarantine, purging tombstones, replaying."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from engine import projections
from engine.admission import live_session
from engine.codec import clean_text
from engine.errors import NotQuarantined, ReplayDiverged, UnknownEvent
from engine.events import (
    REGISTRY,
    ExecutionStarted,
    InputAdmitted,
    InputCancelled,
    InputDeliveryChanged,
    InputPromoted,
    SessionCreated,
    SessionDeletedEvent,
    Stored,
)
from engine.limits import EngineConfig
from engine.log import row_of
from engine.plan import Plan
from engine.ports import Reader, Transaction
from engine.records import RecoveryRow

PAGE = 1_000


# --- quarantine --------------------------------------------------------------------------------------


def quarantine_of(tx: Reader, session_id: str) -> RecoveryRow:
    """The row that keeps a session in quarantine. Raises `NotQuarantined`."""
    row = tx.recovery(session_id)
    if row is None or row.recovery_error is None:
        raise NotQuarantined(f"session {session_id} is in no quarantine")
    return row


def quarantine_unread(tx: Transaction, session_id: str, reason: str) -> None:
    """Quarantine a session whose rows can't even be read well enough to claim it.

    Its claim goes, too, as with any quarantine: one that can't be read could never be cleared, and would be
    in the way of `discard`. An owner that still lives finds it lost.
    """
    old = tx.recovery(session_id)
    tx.delete_claim(session_id)
    tx.put_recovery(
        RecoveryRow(
            session_id=session_id,
            execution_id="" if old is None else old.execution_id,
            previous_execution_id=None,
            continuation_message_id=None if old is None else old.continuation_message_id,
            wake_pending=True,
            takeovers=0 if old is None else old.takeovers,
            recovery_error=clean_text(reason),
        )
    )


def release(tx: Transaction, session_id: str) -> Plan[None]:
    """Lift a quarantine: the error and the count of take-overs are forgotten.

    If the log shows an open step, the next acquire starts in phase `unknown` and settles it.
    """
    live_session(tx, session_id)
    row = quarantine_of(tx, session_id)
    lifted = attrs.evolve(row, recovery_error=None, takeovers=0, wake_pending=True)
    return Plan(commit=lambda tx, stored: tx.put_recovery(lifted), value=None)


# --- purging -----------------------------------------------------------------------------------------


def tombstones(tx: Reader, before_ms: int) -> list[str]:
    """Sessions whose deletion was written before that wall time, in milliseconds."""
    found: list[str] = []
    after = ""
    while page := tx.sessions(after, PAGE):
        after = page[-1].session_id
        for session in page:
            buried = (
                tx.latest_event(session.session_id, SessionDeletedEvent.type) if session.deleted else None
            )
            if buried is not None and buried.created < before_ms:
                found.append(session.session_id)
    return found


def erase(tx: Transaction, session_id: str) -> bool:
    """Erase the rows of one tombstone; its fence stays, so that generations never start again."""
    session = tx.session(session_id)
    if session is None or not session.deleted:
        return False
    tx.erase_session(session_id)
    return True


# --- replaying ---------------------------------------------------------------------------------------


def replay(tx: Transaction, stored: Sequence[Stored], config: EngineConfig) -> int:
    """Write events as they were stored elsewhere, for sessions that nobody executes here.

    An identical event that is already there is accepted silently. Returns how many were new. Raises
    `ReplayDiverged` for anything else than an exact continuation, and `UnknownEvent` for a type that no log
    can hold; then nothing is changed.
    """
    return sum(_replay_one(tx, item, config) for item in stored)


def _replay_one(tx: Transaction, item: Stored, config: EngineConfig) -> bool:
    session_id, where = item.event.session_id, f"{item.event.session_id} seq {item.seq}"
    if tx.claim(session_id) is not None:
        raise ReplayDiverged(f"{session_id} is claimed: only sessions that nobody executes can be replayed")
    if REGISTRY.get((item.type, item.event.version)) is not type(item.event) or not item.event.durable:
        raise UnknownEvent(f"{item.type} at {where} is no event that a log can hold")
    row = row_of(item, config)
    latest = tx.latest_seq(session_id)
    if item.seq <= latest:
        if tx.events(session_id, item.seq - 1, 1) != [row]:
            raise ReplayDiverged(f"{item.type} at {where} differs from the event that is stored there")
        return False
    if item.seq != latest + 1:
        raise ReplayDiverged(f"{item.type} at {where} leaves a gap: the log ends at {latest}")
    if (item.seq == 0) != isinstance(item.event, SessionCreated):
        raise ReplayDiverged(f"{item.type} at {where}: a session begins with its creation, and only there")
    known = tx.event_by_id(item.event_id)
    if known is not None:
        raise ReplayDiverged(
            f"{item.type} at {where} has the id of {known.session_id} seq {known.seq}: {item.event_id}"
        )
    session = tx.session(session_id)
    if session is not None and session.deleted:
        raise ReplayDiverged(f"{item.type} at {where} follows the session's end")
    _check_inbox(tx, item, where)
    if isinstance(item.event, ExecutionStarted):
        # generations never start again, so the fence follows a replayed log, too
        tx.put_generation(session_id, max(tx.generation(session_id), item.event.generation))
    projections.project(tx, item)
    tx.append_event(row)
    return True


def _check_inbox(tx: Transaction, item: Stored, where: str) -> None:
    """Input ids are unique over all sessions, so a foreign log may name one that is taken here."""
    event = item.event
    if not isinstance(event, InputAdmitted | InputDeliveryChanged | InputCancelled | InputPromoted):
        return
    known = tx.input(event.input_id)
    if isinstance(event, InputAdmitted):
        if known is not None:
            raise ReplayDiverged(
                f"{item.type} at {where}: {event.input_id} was admitted to {known.session_id} already"
            )
    elif known is None or known.session_id != event.session_id or known.state != "pending":
        raise ReplayDiverged(f"{item.type} at {where}: {event.input_id} doesn't wait in this session")
