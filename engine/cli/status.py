"""`status`: who is at work on a database and what waits, from one snapshot."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import attrs
import click

from engine import events as ev
from engine.claims import EXPIRED_AT_ONCE, HANDED_OVER, is_free
from engine.cli import reading, show
from engine.cli.usage import FILE
from engine.ports import Reader
from engine.records import JSON, Claim
from engine.store import open_readonly

FREED = {HANDED_OVER: "handed over", EXPIRED_AT_ONCE: "given up"}
"""What `expires_at` says where it is no time."""


@attrs.define(kw_only=True)
class NodeSeen:
    """A node that left traces: by the claims it holds, and the sessions whose latest execution is its own."""

    owner_id: str
    live: int = 0  #: claims
    expired: int = 0  #: claims that are free to be taken over
    latest: int = 0  #: sessions
    started_at: int = 0  #: of its latest execution, wall clock in ms; 0 if none is known


@attrs.frozen(kw_only=True)
class Status:
    """The whole picture at `now_ms`; `sessions` are those with a claim, pending input or a quarantine."""

    now_ms: int
    count: int  #: sessions, tombstones left out
    deleted: int
    nodes: list[NodeSeen]
    sessions: list[reading.Overview]

    @property
    def claims(self) -> list[Claim]:
        """The claims, live or not, by session."""
        return [item.claim for item in self.sessions if item.claim is not None]

    @property
    def waiting(self) -> list[reading.Overview]:
        """The sessions with pending input."""
        return [item for item in self.sessions if item.pending]

    @property
    def quarantined(self) -> list[reading.Overview]:
        """The sessions in quarantine."""
        return [item for item in self.sessions if item.quarantined]


def read_status(tx: Reader, now_ms: int) -> Status:
    """Read it all; `now_ms` is the wall clock that leases are held against."""
    nodes: dict[str, NodeSeen] = {}
    kept: list[reading.Overview] = []
    count = deleted = 0
    for item in _overviews(tx):
        count += not item.row.deleted
        deleted += item.row.deleted
        _note_latest(tx, item, nodes)
        if item.claim is not None:
            node = nodes.setdefault(item.claim.owner_id, NodeSeen(owner_id=item.claim.owner_id))
            node.expired += is_free(item.claim, now_ms)
            node.live += not is_free(item.claim, now_ms)
        if item.claim is not None or item.pending or item.quarantined:
            kept.append(item)
    latest_first = sorted(nodes.values(), key=lambda node: (-node.started_at, node.owner_id))
    return Status(now_ms=now_ms, count=count, deleted=deleted, nodes=latest_first, sessions=kept)


def _overviews(tx: Reader) -> Iterable[reading.Overview]:
    after = ""
    while page := reading.overview_page(tx, after):
        yield from page
        after = page[-1].row.session_id


def _note_latest(tx: Reader, item: reading.Overview, nodes: dict[str, NodeSeen]) -> None:
    row = tx.latest_event(item.row.session_id, ev.ExecutionStarted.type)
    data = None if row is None else reading.data_of(row)
    owner_id = data.get("owner_id") if isinstance(data, dict) else None
    if row is None or not isinstance(owner_id, str):
        return  # never executed, or an event that `verify` would call unreadable
    node = nodes.setdefault(owner_id, NodeSeen(owner_id=owner_id))
    node.latest += 1
    node.started_at = max(node.started_at, row.created)


# --- shown -------------------------------------------------------------------------------------------


@click.command(short_help="Show who is at work on FILE, and what waits.")
@FILE
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
def status(file: str, as_json: bool) -> None:
    """Show the nodes seen, the claims with the rest of their leases, pending input, and quarantines.

    A node is seen by the claims it holds and by the latest execution of each session; one that did nothing
    yet leaves no trace. Leases are held against this machine's clock.
    """
    from engine.system import real_system

    with open_readonly(file) as store:
        now_ms = real_system().clock.now_ms()
        found = reading.read(store, functools.partial(read_status, now_ms=now_ms))
    if as_json:
        click.echo(show.json_text(_status_json(file, found), indent=2))
    else:
        _print_status(file, found)


def _status_json(file: str, found: Status) -> JSON:
    return {
        "file": file,
        "now_ms": found.now_ms,
        "sessions": found.count,
        "deleted": found.deleted,
        "nodes": [attrs.asdict(node) for node in found.nodes],
        "claims": [
            {
                **attrs.asdict(claim),
                "state": _state(claim, found.now_ms),
                "remaining_ms": None if claim.expires_at in FREED else claim.expires_at - found.now_ms,
            }
            for claim in found.claims
        ],
        "pending": [
            {"session_id": item.row.session_id, "pending": item.pending, "parked": item.parked}
            for item in found.waiting
        ],
        "quarantine": [attrs.asdict(item.recovery) for item in found.quarantined if item.recovery],
    }


def _state(claim: Claim, now_ms: int) -> str:
    freed = FREED.get(claim.expires_at)
    if freed is not None:
        return freed.replace(" ", "_")
    return "expired" if is_free(claim, now_ms) else "live"


def _lease(claim: Claim, now_ms: int) -> str:
    freed = FREED.get(claim.expires_at)
    if freed is not None:
        return freed
    remaining = claim.expires_at - now_ms
    return show.seconds(remaining) if remaining > 0 else f"expired {show.seconds(-remaining)} ago"


def _print_status(file: str, found: Status) -> None:
    gone = f" and {found.deleted} deleted" if found.deleted else ""
    pending = sum(item.pending for item in found.waiting)
    parked = sum(item.parked for item in found.waiting)
    show.say(
        f"{file}: {show.count(found.count, 'session')}{gone}, {show.count(len(found.nodes), 'node')} seen,"
        f" {show.count(len(found.claims), 'claim')}, {show.count(pending, 'pending input')}"
        f" ({parked} parked), {len(found.quarantined)} in quarantine"
    )
    _table(
        ("node", "live claims", "expired claims", "latest executions", "started its latest"),
        [
            (node.owner_id, node.live, node.expired, node.latest, _when_or_none(node.started_at))
            for node in found.nodes
        ],
    )
    _table(
        ("claimed session", "phase", "lease", "interrupt", "generation", "node"),
        [
            (
                claim.session_id,
                claim.phase,
                _lease(claim, found.now_ms),
                "-" if claim.interrupt_seq is None else "asked",
                claim.generation,
                claim.owner_id,
            )
            for claim in found.claims
        ],
    )
    _table(
        ("session with input", "pending", "parked", "title"),
        [(item.row.session_id, item.pending, item.parked, item.row.title) for item in found.waiting],
    )
    _table(
        ("session in quarantine", "takeovers", "reason"),
        [
            (item.row.session_id, item.recovery.takeovers, item.recovery.recovery_error)
            for item in found.quarantined
            if item.recovery is not None
        ],
    )


def _when_or_none(moment_ms: int) -> str:
    return show.when(moment_ms) if moment_ms else "-"


def _table(headings: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    """A table after a blank line; nothing at all without rows."""
    if rows:
        click.echo()
        show.table(headings, rows)
