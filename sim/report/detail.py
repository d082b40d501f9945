"""What the page shows about one mark: plain data, bounded in size."""

from __future__ import annotations

import json
from typing import Any

import attrs

from engine.records import JSON, Claim, EventRow
from sim.history import ClaimSeen
from sim.trace import Entry, canonical

TEXT_MAX = 6_000
"""Characters of one mark's details; longer ones are cut, and say so."""


def detail(entry: Entry) -> JSON:
    """An entry's fields as plain data."""
    if entry.kind in ("commit", "refused"):
        whole = _write(entry)
    elif entry.kind == "gate":
        whole = {}
    else:
        whole = {name: _plain(value) for name, value in entry.fields.items()}
    return _bounded(whole)


def _write(entry: Entry) -> dict[str, JSON]:
    fields = entry.fields
    found: dict[str, JSON] = {"wall_ms": fields["now_ms"]}
    if fields["error"] is not None:
        found["error"] = _plain(fields["error"])
    found["events"] = [_event(row) for row in fields["events"]]
    found["claims"] = [_claim_seen(seen) for seen in fields["claims"] if seen.before != seen.after]
    return found


def _event(row: EventRow) -> dict[str, JSON]:
    data = json.loads(row.data)
    data.pop("session_id", None)
    return {
        "seq": row.seq,
        "type": row.type,
        "session": row.session_id,
        "execution": row.execution_id,
        "data": data,
    }


def _claim_seen(seen: ClaimSeen) -> dict[str, JSON]:
    changes = "cleared" if seen.after is None else claim_changes(seen.before, seen.after)
    return {"session": seen.session_id, "changes": changes}


def claim_changes(before: Claim | None, after: Claim) -> dict[str, JSON]:
    """The fields of a claim row that a write set or changed, with their new values."""
    found = {}
    for field in attrs.fields(Claim):
        value = getattr(after, field.name)
        if before is None or getattr(before, field.name) != value:
            found[field.name] = _plain(value)
    return found


def _plain(value: Any) -> JSON:
    return _as_json(canonical(value))


def _as_json(value: Any) -> JSON:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, dict):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    return value


def _bounded(value: JSON) -> JSON:
    text = json.dumps(value)
    if len(text) <= TEXT_MAX:
        return value
    return {"shortened": text[:TEXT_MAX], "characters": len(text)}
