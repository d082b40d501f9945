"""The few trace entries that show a breach: what happened to the nodes concerned, who took the session, and
what was written and called just before and just after."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from engine.records import Claim
from sim.record import Record
from sim.scenario import DISK_KINDS
from sim.trace import Entry

BEFORE, AFTER = 3, 1
CAUSES = 4
"""How many entries about nodes, and about take-overs, are shown at most from further back."""


def excerpt(record: Record, at: int, session: str | None, nodes: Collection[str]) -> list[Entry]:
    """The entries to show for a breach at the trace entry `at`, in their order: at most `CAUSES` + `BEFORE`
    + 1 + `AFTER`. `session` None takes those of every session."""
    steps = _steps_of(record, session)
    past = [entry for entry in record.run.trace.entries[:at] if _shows(entry, session, nodes, steps)]
    past = list(once(past))
    causes = [entry for entry in past if _cause(entry)][-CAUSES:]
    near = [entry for entry in past if not _chunk(entry)][-BEFORE:]
    rest = (e for e in record.run.trace.entries[at:] if _shows(e, session, nodes, steps))
    later = list(_first(rest, at))
    chosen = {entry.index: entry for entry in (*causes, *near, *later)}
    return [chosen[index] for index in sorted(chosen)]


def once(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Of a fault of the machine, which strikes each node, only the first entry."""
    told: dict[str, None] = {}
    for entry in entries:
        if entry.kind == "fault" and entry.label in DISK_KINDS:
            name = str(entry.fields.get("name"))
            if name in told:
                continue
            told[name] = None
        yield entry


def _first(entries: Iterator[Entry], at: int) -> Iterator[Entry]:
    """The entry at `at` if it is shown, and a few that tell something after it."""
    left = AFTER
    for entry in entries:
        if entry.index == at:
            yield entry
        elif not _chunk(entry):
            left -= 1
            yield entry
        if left <= 0:
            return


def _steps_of(record: Record, session: str | None) -> Collection[str] | None:
    """The steps of a session, by which a provider's entries are known; None takes all."""
    if session is None:
        return None
    return {opened.message_id for opened in record.run.ledger.opened if opened.session_id == session}


def _shows(entry: Entry, session: str | None, nodes: Collection[str], steps: Collection[str] | None) -> bool:
    fields = entry.fields
    match entry.kind:
        case "disk":
            return True
        case "node" | "fault":
            return (entry.node.rpartition(".")[0] or entry.node) in nodes
        case "refused" if type(fields.get("error")).__name__.startswith("_"):
            return False  # a trial of the batch itself, which nobody asked for
        case "commit" | "refused":
            rows = [*fields.get("events", ()), *fields.get("claims", ())]
            return session is None or any(row.session_id == session for row in rows)
        case "provider" if entry.label == "open":
            return session is None or getattr(fields.get("request"), "session_id", None) == session
        case "provider":
            return steps is None or fields.get("message_id") in steps
        case "tool":
            return (entry.node.rpartition(".")[0] or entry.node) in nodes
        case _:
            return False


def _cause(entry: Entry) -> bool:
    """Whether it says that a node stood still or came back, what a loss of power left, or that a claim
    changed hands."""
    if entry.kind == "commit":
        pairs = [(seen.before, seen.after) for seen in entry.fields.get("claims", ())]
        return any(a is not None and b is not None and _other_holder(entry, a, b) for a, b in pairs)
    return entry.kind in ("node", "fault") or (entry.kind == "disk" and "lost" in entry.fields)


def _other_holder(entry: Entry, before: Claim, after: Claim) -> bool:
    """Whether the claim changed hands, or somebody else goes on under its id."""
    if before.execution_id != after.execution_id:
        return True
    return before.expires_at < after.expires_at and not after.execution_id.startswith(f"exe_{entry.node}_")


def _chunk(entry: Entry) -> bool:
    return entry.kind == "provider" and entry.label != "open"
