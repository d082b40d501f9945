"""What a `work` sees of the database: named reads, and named writes of one transaction.

One method is one statement of `sql/queries.sql`. Nothing is decided here; and nothing of a work runs on
once the database has ended its transaction, or the work itself is over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import apsw

from engine.codec import clean_text, decode_json, encode_json
from engine.errors import RowMalformed, StoreError
from engine.events import Stored
from engine.records import Claim, EventRow, InputRow, Phase, RecoveryRow, SessionRow
from engine.store.mapping import map_error
from engine.store.queries import QUERIES

Row = tuple[Any, ...]

logger = logging.getLogger("fencepost.store")


class SqliteReader:
    """Named reads over one connection; a snapshot if the connection is in a transaction."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._ended: StoreError | None = None
        self._transaction_started = connection.in_transaction

    @property
    def ended(self) -> StoreError | None:
        """Why nothing more can be done here: the error that made SQLite end the whole transaction."""
        return self._ended

    def end(self) -> None:
        """The work is over: refuse whatever still holds this object."""
        self._ended = self._ended or StoreError("a transaction was used after its work was over")

    def _run(self, name: str, params: Any = ()) -> list[Row]:
        """All rows of a statement. Fetched at once, since an open cursor would see later writes."""
        if self._ended is not None:
            raise self._ended
        try:
            return self._connection.execute(QUERIES[name], params).fetchall()
        except UnicodeEncodeError:
            return self._run(name, _cleaned(params))
        except apsw.Error as exc:
            raise self._failed(exc) from exc

    def _one(self, name: str, params: Any = ()) -> Row | None:
        rows = self._run(name, params)
        return rows[0] if rows else None

    def _failed(self, exc: apsw.Error) -> StoreError:
        # Whoever catches this error and writes on would write outside any transaction.
        mapped = map_error(exc)
        if self._transaction_started and not self._connection.in_transaction:
            self._ended = mapped
        return mapped

    def session(self, session_id: str) -> SessionRow | None:
        row = self._one("session", (session_id,))
        return None if row is None else _session(row)

    def sessions(self, after: str, limit: int) -> list[SessionRow]:
        return [_session(row) for row in self._run("sessions", (after, limit))]

    def latest_seq(self, session_id: str) -> int:
        row = self._one("latest_seq", (session_id,))
        return -1 if row is None else int(row[0])

    def events(self, session_id: str, after: int, limit: int) -> list[EventRow]:
        return [_event(row) for row in self._run("events", (session_id, after, limit))]

    def event_by_id(self, event_id: str) -> EventRow | None:
        row = self._one("event_by_id", (event_id,))
        return None if row is None else _event(row)

    def latest_event(self, session_id: str, type: str) -> EventRow | None:
        row = self._one("latest_event", (session_id, type))
        return None if row is None else _event(row)

    def claim(self, session_id: str) -> Claim | None:
        row = self._one("claim", (session_id,))
        return None if row is None else _claim(row)

    def claims(self, after: str, limit: int) -> list[Claim]:
        return _readable_claims(self._run("claims", (after, limit)))

    def claims_due(self, now_ms: int, limit: int) -> list[Claim]:
        return _readable_claims(self._run("claims_due", (now_ms, limit)))

    def generation(self, session_id: str) -> int:
        row = self._one("generation", (session_id,))
        return 0 if row is None else int(row[0])

    def input(self, input_id: str) -> InputRow | None:
        row = self._one("input", (input_id,))
        return None if row is None else _input(row)

    def inputs(self, session_id: str) -> list[InputRow]:
        return [_input(row) for row in self._run("inputs", (session_id,))]

    def pending_inputs(self, session_id: str, delivery: str, limit: int) -> list[InputRow]:
        return [_input(row) for row in self._run("pending_inputs", (session_id, delivery, limit))]

    def pending_count(self, session_id: str) -> int:
        return int(self._run("pending_count", (session_id,))[0][0])

    def parked_count(self, session_id: str) -> int:
        return int(self._run("parked_count", (session_id,))[0][0])

    def sessions_waiting(self, limit: int) -> list[str]:
        return [row[0] for row in self._run("sessions_waiting", (limit,))]

    def released(self, limit: int) -> list[str]:
        return [row[0] for row in self._run("released", (limit,))]

    def recovery(self, session_id: str) -> RecoveryRow | None:
        row = self._one("recovery", (session_id,))
        return None if row is None else _recovery(row)

    def quarantined(self, limit: int) -> list[RecoveryRow]:
        return [_recovery(row) for row in self._run("quarantined", (limit,))]


class SqliteTransaction(SqliteReader):
    """Named writes of one work. `told` collects the decoded events to announce once it is committed."""

    def __init__(self, connection: apsw.Connection, *, now_ms: int) -> None:
        super().__init__(connection)
        self._now_ms = now_ms
        self.told: list[Stored] = []

    @property
    def now_ms(self) -> int:
        return self._now_ms

    def tell(self, stored: Stored) -> None:
        self.told.append(stored)

    def append_event(self, row: EventRow) -> None:
        self._run(
            "append_event",
            (
                row.event_id,
                row.session_id,
                row.seq,
                row.type,
                row.version,
                row.created,
                row.execution_id,
                row.data,
                row.metadata,
                row.location,
            ),
        )

    def put_session(self, row: SessionRow) -> None:
        self._run(
            "put_session",
            (
                row.session_id,
                row.title,
                row.location,
                row.model,
                row.agent,
                row.system,
                row.created,
                row.status,
                row.deleted,
            ),
        )

    def put_input(self, row: InputRow) -> None:
        self._run(
            "put_input",
            (
                row.input_id,
                row.session_id,
                row.kind,
                row.delivery,
                encode_json(row.payload),
                row.admitted_seq,
                row.state,
                row.parked,
            ),
        )

    def park_inputs(self, session_id: str, through: int) -> None:
        self._run("park_inputs", (session_id, through))

    def unpark_inputs(self, session_id: str, through: int) -> None:
        self._run("unpark_inputs", (session_id, through))

    def put_claim(self, claim: Claim) -> None:
        self._run(
            "put_claim",
            (
                claim.session_id,
                claim.execution_id,
                claim.owner_id,
                claim.generation,
                claim.phase.value,
                claim.assistant_message_id,
                claim.assistant_seq,
                claim.expires_at,
                claim.created_at,
                claim.version,
                claim.interrupt_seq,
            ),
        )

    def delete_claim(self, session_id: str) -> None:
        self._run("delete_claim", (session_id,))

    def put_generation(self, session_id: str, generation: int) -> None:
        self._run("put_generation", (session_id, generation))

    def put_recovery(self, row: RecoveryRow) -> None:
        self._run(
            "put_recovery",
            (
                row.session_id,
                row.execution_id,
                row.previous_execution_id,
                row.continuation_message_id,
                row.wake_pending,
                row.takeovers,
                row.recovery_error,
            ),
        )

    def delete_recovery(self, session_id: str) -> None:
        self._run("delete_recovery", (session_id,))

    def erase_session(self, session_id: str) -> None:
        self._run("erase_session", {"session_id": session_id})


def _cleaned(params: Any) -> Any:
    """`params` with text that UTF-8 can't hold replaced; the usual case pays nothing for it."""
    if isinstance(params, dict):
        return {name: _cleaned_value(value) for name, value in params.items()}
    return tuple(_cleaned_value(value) for value in params)


def _cleaned_value(value: Any) -> Any:
    return clean_text(value) if isinstance(value, str) else value


def _session(row: Row) -> SessionRow:
    session_id, title, location, model, agent, system, created, status, deleted = row
    return SessionRow(
        session_id=session_id,
        title=title,
        location=location,
        model=model,
        agent=agent,
        system=system,
        created=created,
        status=status,
        deleted=bool(deleted),
    )


def _event(row: Row) -> EventRow:
    event_id, session_id, seq, type_, version, created, execution_id, data, metadata, location = row
    return EventRow(
        event_id=event_id,
        session_id=session_id,
        seq=seq,
        type=type_,
        version=version,
        created=created,
        execution_id=execution_id,
        data=data,
        metadata=metadata,
        location=location,
    )


def _phase(name: str, session_id: str) -> Phase:
    try:
        return Phase(name)
    except ValueError:
        raise RowMalformed(f"the claim of session {session_id} is in the unknown phase {name!r}") from None


def _readable_claims(rows: Iterable[Row]) -> list[Claim]:
    """The claims that this version can read: one that it can't must not hide the others."""
    found: list[Claim] = []
    for row in rows:
        try:
            found.append(_claim(row))
        except RowMalformed as exc:
            logger.warning("%s; it is left alone", exc)
    return found


def _claim(row: Row) -> Claim:
    session_id, execution_id, owner_id, generation, phase, message_id, message_seq, *rest = row
    expires_at, created_at, version, interrupt_seq = rest
    return Claim(
        session_id=session_id,
        execution_id=execution_id,
        owner_id=owner_id,
        generation=generation,
        phase=_phase(phase, session_id),
        assistant_message_id=message_id,
        assistant_seq=message_seq,
        expires_at=expires_at,
        created_at=created_at,
        version=version,
        interrupt_seq=interrupt_seq,
    )


def _input(row: Row) -> InputRow:
    input_id, session_id, kind, delivery, payload, admitted_seq, state, parked = row
    return InputRow(
        input_id=input_id,
        session_id=session_id,
        kind=kind,
        delivery=delivery,
        payload=decode_json(payload),
        admitted_seq=admitted_seq,
        state=state,
        parked=bool(parked),
    )


def _recovery(row: Row) -> RecoveryRow:
    session_id, execution_id, previous_id, continuation_id, wake_pending, takeovers, error = row
    return RecoveryRow(
        session_id=session_id,
        execution_id=execution_id,
        previous_execution_id=previous_id,
        continuation_message_id=continuation_id,
        wake_pending=bool(wake_pending),
        takeovers=takeovers,
        recovery_error=error,
    )
