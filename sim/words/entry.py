"""A trace entry as a line to read: when, where, and what was done; the bytes of it stay in the trace."""

from __future__ import annotations

from typing import Any

from engine.claims import EXPIRED_AT_ONCE, HANDED_OVER
from engine.records import Claim, EventRow
from sim.history import ClaimSeen
from sim.trace import Entry

GIVEN_UP = {HANDED_OVER: "handed over", EXPIRED_AT_ONCE: "freed at once"}
"""Ends of a lease that are no times."""

EVENTS_MAX = 6
TEXT_MAX = 160
"""Characters of what a line says; a longer one is cut and ends with dots."""


def line(entry: Entry) -> str:
    """`#167    40.350 s a.1 commit renewal: exe_a.1_… renewed until 70.350 s`. Times are true time but for
    `until`, which is what the writer's wall clock will show then."""
    return f"#{entry.index:<5} {entry.true_ms / 1000:>9.3f} s  {entry.node:<4} {_cut(_what(entry))}"


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= TEXT_MAX else f"{flat[: TEXT_MAX - 1]}…"


def _what(entry: Entry) -> str:
    fields = entry.fields
    match entry.kind:
        case "commit":
            return f"committed {entry.label}{_colon(_wrote(fields) + _claims(fields))}"
        case "refused":
            error = fields.get("error")
            why = "" if error is None else f"{type(error).__name__}: {error}"
            return f"was refused {entry.label}{_colon([why] if why else [])}"
        case "provider" if entry.label == "open":
            return f"opened a request for {getattr(fields.get('request'), 'message_id', '?')}"
        case "provider":
            return f"received {entry.label} for {fields.get('message_id')}"
        case "tool":
            return f"started tool {entry.label} for call {fields.get('call')}"
        case "listener":
            return f"told a listener of {entry.label} (seq {fields.get('seq')})"
        case "disk":
            return f"disk: {entry.label} ({fields.get('name')})"
        case "fault":
            return f"fault {entry.label} ({fields.get('name')})"
        case "node":
            return f"node {entry.label}"
        case _:
            return (
                f"{entry.kind} {entry.label} ({entry.task})" if entry.task else f"{entry.kind} {entry.label}"
            )


def _colon(parts: list[str]) -> str:
    return f": {', '.join(parts)}" if parts else ""


def _wrote(fields: Any) -> list[str]:
    rows: tuple[EventRow, ...] = fields.get("events", ())
    said = [f"{row.type} (seq {row.seq})" for row in rows[:EVENTS_MAX]]
    return said + ([f"and {len(rows) - EVENTS_MAX} more"] if len(rows) > EVENTS_MAX else [])


def _claims(fields: Any) -> list[str]:
    seen: tuple[ClaimSeen, ...] = fields.get("claims", ())
    return [_claim(each.before, each.after) for each in seen if each.before != each.after]


def _claim(before: Claim | None, after: Claim | None) -> str:
    """What became of a claim row: the most telling change alone."""
    if after is None:
        return "no claim" if before is None else f"the claim of {before.execution_id} removed"
    until = f" until {after.expires_at / 1000:.3f} s"
    if before is None:
        return f"claimed for {after.execution_id}{until}"
    if before.execution_id != after.execution_id:
        return f"taken over from {before.execution_id} for {after.execution_id}{until}"
    if before.expires_at != after.expires_at and after.expires_at in GIVEN_UP:
        return f"the claim of {after.execution_id} {GIVEN_UP[after.expires_at]}"
    if before.expires_at != after.expires_at:
        return f"the claim of {after.execution_id} renewed{until}"
    if before.interrupt_seq != after.interrupt_seq:
        return f"an interrupt asked of {after.execution_id}"
    return f"the claim of {after.execution_id} in phase {after.phase}"
