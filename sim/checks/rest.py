"""The invariants about getting there: claims are taken up, sessions rest, followers see everything."""

from __future__ import annotations

from collections.abc import Iterator

from engine.records import Claim
from sim.ledger import Followed
from sim.record import Record
from sim.verdict import Violation

SLACK_MS = 10_000
"""What taking up a claim may cost besides the sweep: its own commits, a slow listener or two."""


def i7(record: Record) -> Iterator[Violation]:
    """Every claim with no live owner is taken up by a running node within a bound.

    Judged where one sweeping node ran undisturbed from the start: it had every chance.
    """
    run = record.run
    if run.config_error is not None or not _undisturbed(record):
        return
    for session_id in record.sessions():
        yield from _taken_up(record, session_id)


def _undisturbed(record: Record) -> bool:
    """Whether some sweeping node was there from the start, and nothing befell it."""
    struck = {fault.node for fault in record.run.ledger.faults}
    stopped = {act.node for act in record.run.scenario.actions if act.do in ("shutdown", "start")}
    return any(
        node.sweep and node.starts_at_s == 0 and node.name not in struck | stopped
        for node in record.run.scenario.nodes
    )


def _taken_up(record: Record, session_id: str) -> Iterator[Violation]:
    config = record.run.scenario.engine_config()
    rows: list[tuple[float, Claim | None]] = [
        (commit.true_ms, seen.after)
        for commit in record.commits
        for seen in commit.claims
        if seen.session_id == session_id and seen.before != seen.after
    ]
    ends = [*(true_ms for true_ms, _ in rows[1:]), record.run.virtual_ms][: len(rows)]
    bound = 2.2 * config.sweep_interval_ms + 2 * config.clock_skew_ms_max + SLACK_MS
    for (since, row), until in zip(rows, ends, strict=True):
        if row is None:
            continue
        # a claim dated too far ahead may be taken up once it was watched for a whole lease and the skew
        watched = since + config.lease_ms + config.clock_skew_ms_max
        due = min(max(float(row.expires_at), since), watched)
        if until > due + bound:
            yield Violation(
                rule="I7",
                sentence=(
                    f"the claim of {row.execution_id} was free from {due:g} ms on, and nobody took it up "
                    f"before {until:g} ms"
                ),
                session=session_id,
                true_ms=due,
                clocks=record.clocks_at(due),
            )


def i16(record: Record) -> Iterator[Violation]:
    """After faults stop, every session comes to rest within a bounded time."""
    run = record.run
    if run.ended is not None:
        yield Violation(rule="I16", sentence=f"the run couldn't go on: {run.ended}")
    for crash in run.ledger.crashes:
        yield Violation(rule="I16", sentence=crash)
    if run.unrest is not None:
        yield Violation(
            rule="I16",
            sentence=f"the world never came to rest: {run.unrest}",
            true_ms=run.virtual_ms,
            clocks=record.clocks_at(run.virtual_ms),
        )


def i14(record: Record) -> Iterator[Violation]:
    """A follower sees every committed event of its session once, in order, and nothing else."""
    for followed in record.run.ledger.followed:
        sentence = _followed_wrong(record, followed)
        if sentence is not None:
            yield Violation(rule="I14", sentence=sentence, session=followed.session_id, node=followed.node)


def _followed_wrong(record: Record, followed: Followed) -> str | None:
    rows = [row for row in record.events(followed.session_id) if row.seq > followed.after]
    for place, (seq, event_id) in enumerate(followed.seen):
        if place >= len(rows):
            return f"{followed.name} saw seq {seq}, which was never committed"
        if (rows[place].seq, rows[place].event_id) != (seq, event_id):
            return (
                f"{followed.name} saw {event_id} at seq {seq} where {rows[place].event_id} at seq "
                f"{rows[place].seq} is committed"
            )
    if followed.listening and len(followed.seen) < len(rows):
        return (
            f"{followed.name} saw {len(followed.seen)} of {len(rows)} events and still waits, "
            f"the next is {rows[len(followed.seen)].type} at seq {rows[len(followed.seen)].seq}"
        )
    return None


REST_CHECKS = (i16, i7, i14)
