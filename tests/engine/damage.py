"""Logs that can't be read any more, for the tests of quarantine."""

from __future__ import annotations

import apsw

from engine.codec import encode_event
from engine.events import SessionRenamed

APPEND = """
INSERT INTO event (event_id, session_id, seq, type, version, created, execution_id, data, metadata)
SELECT 'evt_damage_' || session_id || latest_seq, session_id, latest_seq + 1, ?, 1, 0, NULL, ?, ?
FROM sequence WHERE session_id = ?
"""
MEND = "UPDATE event SET type = ?, data = ?, metadata = NULL WHERE event_id GLOB 'evt_damage_*'"

DAMAGES: dict[str, tuple[str, bytes, bytes | None]] = {
    "an unknown type": ("nonsense", b"{}", None),
    "no JSON": ("session.renamed", b"{", None),
    "a missing field": ("session.renamed", b"{}", None),
    "a foreign session": ("session.renamed", b'{"session_id":"ses_other","title":"x"}', None),
    "a broken envelope": ("session.renamed", b'{"session_id":"ses_a","title":"x"}', b"{"),
    "a broken start of a step": ("step.started", b"{}", None),
    "a broken end of a step": ("step.ended", b"{}", None),
}
"""Type, data and metadata of events that nobody can decode."""


def damage(connection: apsw.Connection, session_id: str, how: str = "an unknown type") -> None:
    """Append an event that can't be decoded, as no engine would."""
    connection.execute(APPEND, (*DAMAGES[how], session_id))
    assert connection.changes() == 1


def damage_in_place(connection: apsw.Connection, session_id: str, seq: int) -> None:
    """Damage an event that was good before."""
    connection.execute(
        "UPDATE event SET type = 'nonsense' WHERE session_id = ? AND seq = ?", (session_id, seq)
    )
    assert connection.changes() == 1


def mend(connection: apsw.Connection, session_id: str) -> None:
    """Make harmless events of the damaged ones: they give the session the title that it has."""
    event = SessionRenamed(session_id=session_id, title="")
    connection.execute(MEND, (event.type, encode_event(event, bytes_max=1_000)))
