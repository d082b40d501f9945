"""The invariants about getting there: claims are taken up, sessions rest, followers see everything."""

from __future__ import annotations

from collections.abc import Iterator

from engine import events as ev
from engine.claims import EXPIRED_AT_ONCE, HANDED_OVER
from engine.records import Claim
from sim.ledger import Followed, Moment
from sim.record import Record
from sim.verdict import Violation
from sim.words.naming import Names, seconds, session_name
from sim.words.sentence import accuse

SLACK_MS = 10_000
"""What taking up a claim may cost besides the sweep: its own commits, a slow listener or two."""

SETTLED_SLACK_MS = 3_000
"""What the clean-up of a cancelled node may cost beside its bounds: its own commits, and doorbells."""

PROGRESS = (
    ev.StepEnded.type,
    ev.ExecutionSucceeded.type,
    ev.ExecutionFailed.type,
    ev.ExecutionInterrupted.type,
)
"""What resets the count of take-overs."""


def i7(record: Record) -> Iterator[Violation]:
    """Every claim with no live owner is taken up by a running node within a bound.

    Judged where one sweeping node ran undisturbed from the start: it had every chance. A node that was
    cancelled leaves none behind that isn't freed; and no session rests in quarantine for nothing.
    """
    if record.run.config_error is not None:
        return
    yield from _kept_by_the_cancelled(record)
    yield from _quarantined_for_nothing(record)
    if not _undisturbed(record):
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
            names = Names(record, session_id)
            what = (
                f"{names.claim(row.execution_id)} was free to take from {seconds(due)} on, "
                f"and nobody took it up before {seconds(until)}"
            )
            yield accuse(record, "I7", what, session=session_id, moment=record.moment_at(due))


def _kept_by_the_cancelled(record: Record) -> Iterator[Violation]:
    """Whoever is cancelled has its clean-up: within its bounds, each claim that it held is cleared, handed
    over, or freed. Judged where nothing else befell that node."""
    run, config = record.run, record.run.scenario.engine_config()
    bound = config.tool_grace_ms + config.settle_ms_max + SETTLED_SLACK_MS
    for fault in run.ledger.faults:
        struck = [other for other in run.ledger.faults if other.node == fault.node]
        stopped = [act for act in run.scenario.actions if act.node == fault.node and act.do == "shutdown"]
        due = fault.moment.true_ms + bound
        clock = run.nodes[fault.node].spec.clock
        jumps = clock.steps or clock.boot_offset_ms
        if fault.kind != "cancel" or len(struck) > 1 or stopped or jumps or due > run.virtual_ms:
            continue
        for session_id in record.sessions():
            held = record.claim_before(session_id, fault.moment)
            left = record.run.database.history.claim_at(session_id, due)
            if held is None or left is None or not held.execution_id.startswith(f"exe_{fault.node}."):
                continue
            if left.execution_id == held.execution_id and left.expires_at > EXPIRED_AT_ONCE:
                what = f"{seconds(bound)} later {held.execution_id} still held its claim, which nobody freed"
                moment = record.moment_at(due)
                yield accuse(record, "I7", what, session=session_id, node=fault.node, moment=moment)


def _with_action(record: Record, do: str) -> list[str]:
    """The sessions that some action of this kind is about."""
    acts = record.run.scenario.actions
    return [record.session_id(act.session) for act in acts if act.do == do and act.session is not None]


def _quarantined_for_nothing(record: Record) -> Iterator[Violation]:
    """Only a defect quarantines a session: a damaged log is one; providers' and tools' faults are none."""
    damaged = _with_action(record, "poison")
    for row in record.run.database.reader().quarantined(1_000):
        if row.session_id in damaged:
            continue
        name = session_name(row.session_id)
        what = f"session {name} is in quarantine for a fault of the engine itself: {row.recovery_error}"
        yield accuse(record, "I7", what, session=row.session_id)


def i16(record: Record) -> Iterator[Violation]:
    """After faults stop, every session comes to rest within a bounded time; and one that brings down whoever
    takes it up isn't taken up for ever."""
    run = record.run
    if run.config_error is None:
        forgiven = _with_action(record, "release")  # lifting a quarantine resets the count
        for session_id in record.sessions():
            if session_id not in forgiven:
                yield from _over_budget(record, session_id)
    if run.ended is not None:
        yield accuse(record, "I16", f"the run couldn't go on: {run.ended}")
    for crash in run.ledger.crashes:
        yield accuse(record, "I16", crash)
    if run.unrest is not None:
        what = f"the world never came to rest: {run.unrest}"
        yield accuse(record, "I16", what, moment=record.moment_at(run.virtual_ms))


def _over_budget(record: Record, session_id: str) -> Iterator[Violation]:
    """A step may start while the take-overs since the last good step, or end, are within their budget."""
    budget, takeovers = record.run.scenario.engine_config().takeovers_max, 0
    for commit in record.commits:
        for seen in commit.claims:
            before, after = seen.before, seen.after
            if seen.session_id == session_id and before is not None and after is not None:
                taken_over = after.execution_id != before.execution_id
                takeovers += taken_over and before.expires_at != HANDED_OVER
        types = [row.type for row in commit.events if row.session_id == session_id]
        if any(one in PROGRESS for one in types):
            takeovers = 0
        if ev.StepStarted.type in types and takeovers > budget:
            what = (
                f"{Names(record, session_id).node(commit.node)} started a step after {takeovers} take-overs "
                f"without progress, where {budget} {'is' if budget == 1 else 'are'} allowed"
            )
            moment = record.moment_of(commit)
            yield accuse(record, "I16", what, session=session_id, node=commit.node, moment=moment)


def i14(record: Record) -> Iterator[Violation]:
    """A follower sees every committed event of its session once, in order, and nothing else; a listener is
    told of nothing that isn't committed."""
    yield from _told_too_early(record)
    for followed in record.run.ledger.followed:
        what = _followed_wrong(record, followed)
        if what is not None:
            yield accuse(record, "I14", what, session=followed.session_id, node=followed.node)


def _told_too_early(record: Record) -> Iterator[Violation]:
    committed: dict[tuple[str, int], int] = {}
    for commit in record.commits:
        for row in commit.events:
            committed.setdefault((row.type, row.seq), commit.entry)
    for entry in record.run.trace.entries:
        if entry.kind != "listener":
            continue
        since = committed.get((entry.label, entry.fields["seq"]))
        if since is None or since > entry.index:
            node, seq = Names(record, None).node(entry.node), entry.fields["seq"]
            ever = "which was never committed" if since is None else "before it was committed"
            what = f"a listener of {node} was told of {entry.label} (seq {seq}) {ever}"
            clocks = record.clocks_at(entry.true_ms)
            moment = Moment(entry=entry.index, true_ms=entry.true_ms, clocks=clocks)
            yield accuse(record, "I14", what, node=entry.node, moment=moment)
            return


def _followed_wrong(record: Record, followed: Followed) -> str | None:
    rows = [row for row in record.events(followed.session_id) if row.seq > followed.after]
    who = f"{followed.name} at {followed.node}"
    for place, (seq, event_id) in enumerate(followed.seen):
        if place >= len(rows):
            return f"{who} saw an event at seq {seq}, where none was ever committed"
        if (rows[place].seq, rows[place].event_id) != (seq, event_id):
            row = rows[place]
            return f"{who} saw event {event_id} at seq {seq} where {row.type} is due, at seq {row.seq}"
    if followed.listening and len(followed.seen) < len(rows):
        row = rows[len(followed.seen)]
        return (
            f"{who} saw {len(followed.seen)} of {len(rows)} events and waited in vain for the next one, "
            f"{row.type} at seq {row.seq}"
        )
    if followed.cut_off and len(followed.seen) < len(rows) and not _may_end(record, followed):
        return (
            f"{who} was cut off after {len(followed.seen)} of {len(rows)} events, by an engine that went on"
        )
    return None


def _may_end(record: Record, followed: Followed) -> bool:
    """Whether a reading had a reason to end: its engine closes, its session is deleted or can't be read."""
    run = record.run
    struck = {fault.node for fault in run.ledger.faults}
    closed = {act.node for act in run.scenario.actions if act.do == "shutdown"}
    row = run.database.reader().session(followed.session_id)
    damaged = followed.session_id in _with_action(record, "poison")
    return followed.node in struck | closed or damaged or row is None or row.deleted


REST_CHECKS = (i16, i7, i14)
