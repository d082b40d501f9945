"""The invariants that need a run's trace; those that any database shows are in `engine.verify`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine import events as ev
from engine.claims import EXPIRED_AT_ONCE
from engine.errors import ClaimLost
from engine.records import Claim
from sim.history import Commit
from sim.ledger import Opened, ToolStarted
from sim.record import Record
from sim.verdict import Violation
from sim.words.naming import Names, seconds
from sim.words.sentence import accuse

NAMES_EXECUTION = re.compile(r"Execution (\S+) of session ")
"""How a `ClaimLost` that was decided in a transaction begins."""

DELAYS = (
    *("stall", "slow", "monotonic_rate", "take_over", "suspend", "power_cut", "cancel", "store_error"),
    *("power_loss", "disk_error", "disk_full", "slow_disk"),
)
"""The kinds of faults that keep an owner from renewing in time; a sync that lies does it with the power."""


def _at(record: Record, commit: Commit, rule: str, session_id: str, what: str) -> Violation:
    moment = record.moment_of(commit)
    return accuse(record, rule, what, session=session_id, node=commit.node, moment=moment)


def i2(record: Record) -> Iterator[Violation]:
    """While clocks are in the band and nothing delays an owner, nobody else takes its live claim; and
    whatever happens, nobody else removes it."""
    if record.run.config_error is not None:
        return  # no engine ever opened
    yield from _removed_by_others(record)
    config = record.run.scenario.engine_config()
    if any(fault.kind in DELAYS for fault in record.run.struck):
        return
    for commit in record.commits:
        for seen in commit.claims:
            before, after = seen.before, seen.after
            if before is None or before.expires_at <= EXPIRED_AT_ONCE:
                continue
            taken = after is not None and after.execution_id != before.execution_id
            if taken and _in_band(record, commit.true_ms, config.clock_skew_ms_max):
                names = Names(record, seen.session_id)
                what = (
                    f"{names.node(commit.node)} took over from {before.execution_id} at "
                    f"{seconds(commit.true_ms)}, though nothing had delayed it"
                )
                yield _at(record, commit, "I2", seen.session_id, what)


def _removed_by_others(record: Record) -> Iterator[Violation]:
    """A claim is cleared or dropped by the incarnation that holds it: whoever takes over writes its own."""
    for commit in record.commits:
        for seen in commit.claims:
            before = seen.before
            if before is None or seen.after is not None or _drew(commit.node, before.execution_id):
                continue
            node = Names(record, seen.session_id).node(commit.node)
            what = f"{node} removed the claim of {before.execution_id}, which wasn't its own"
            yield _at(record, commit, "I2", seen.session_id, what)


def _drew(node: str, execution_id: str) -> bool:
    """Whether an incarnation drew this id: simulated ids name theirs."""
    return execution_id.startswith(f"exe_{node}_")


def _in_band(record: Record, until_ms: float, width_ms: int) -> bool:
    """Whether one band of this width holds every clock's error from the start on."""
    moments = sorted({0.0, until_ms, *(c.true_ms for c in record.commits if c.true_ms <= until_ms)})
    errors = [shown - ms for ms in moments for shown in record.clocks_at(ms).values()]
    return not errors or max(errors) - min(errors) <= width_ms


def i3(record: Record) -> Iterator[Violation]:
    """By the `now` of its transaction, an expired claim is never renewed or written under; lost stays lost;
    no request or tool starts on a running node after its claim was taken over."""
    for commit in record.commits:
        for seen in commit.claims:
            yield from _written_under_expired(record, commit, seen.session_id, seen.before, seen.after)
    yield from _lost_stays_lost(record)
    yield from _refused_stays_lost(record)
    starts: list[Opened | ToolStarted] = [*record.run.ledger.opened, *record.run.ledger.tools]
    for start in starts:
        yield from _started_after_takeover(record, start)


def _written_under_expired(
    record: Record, commit: Commit, session_id: str, before: Claim | None, after: Claim | None
) -> Iterator[Violation]:
    if before is None or before.expires_at > max(commit.now_ms, EXPIRED_AT_ONCE):
        return
    late = commit.now_ms - before.expires_at
    renewed = (
        after is not None and after.execution_id == before.execution_id and after.version > before.version
    )
    wrote = any(row.execution_id == before.execution_id for row in commit.events)
    if renewed or wrote:
        names = Names(record, session_id)
        claim = names.claim(before.execution_id, by=commit.node)
        types = ", ".join(row.type for row in commit.events if row.execution_id == before.execution_id)
        did = f"renewed {claim}" if renewed and not wrote else f"wrote {types} under {claim}"
        what = f"{names.node(commit.node)} {did} {seconds(late)} after it had expired"
        yield _at(record, commit, "I3", session_id, what)


def _lost_stays_lost(record: Record) -> Iterator[Violation]:
    lost: dict[str, int] = {}
    for commit in record.commits:
        for seen in commit.claims:
            before, after = seen.before, seen.after
            if before is not None and (after is None or after.execution_id != before.execution_id):
                own = any(row.execution_id == before.execution_id for row in commit.events)
                if after is not None or not own:
                    lost.setdefault(before.execution_id, commit.entry)
        for row in commit.events:
            if row.execution_id in lost and lost[row.execution_id] < commit.entry:
                node = Names(record, row.session_id).node(commit.node)
                what = f"{node} wrote {row.type} for {row.execution_id}, which had lost its claim"
                yield _at(record, commit, "I3", row.session_id, what)


def _refused_stays_lost(record: Record) -> Iterator[Violation]:
    """An execution that was told once that its claim is lost shows no sign of life again, though its clock
    may have stepped back since and nobody else has come."""
    told: dict[str, int] = {}
    for entry in record.run.trace.entries:
        error = entry.fields.get("error") if entry.kind == "refused" else None
        named = NAMES_EXECUTION.match(str(error)) if isinstance(error, ClaimLost) else None
        if named is not None:
            told.setdefault(named[1], entry.index)
    for commit in record.commits if told else ():
        for seen in commit.claims:
            before, after = seen.before, seen.after
            if before is None or told.get(before.execution_id, commit.entry) >= commit.entry:
                continue
            own = after is not None and after.execution_id == before.execution_id
            if own and after is not None and after.version > before.version:
                names = Names(record, seen.session_id)
                claim = names.claim(before.execution_id, by=commit.node)
                what = f"{names.node(commit.node)} renewed {claim} after it had been told that it was lost"
                yield _at(record, commit, "I3", seen.session_id, what)


def _started_after_takeover(record: Record, start: Opened | ToolStarted) -> Iterator[Violation]:
    node = record.run.nodes[start.node.rpartition(".")[0]]
    if node.suspended or node.rate_changed:
        return  # its monotonic clock stood still or was slow: only the fence in the database knows
    row = record.claim_before(start.session_id, start.moment)
    if row is not None and row.execution_id == start.execution_id:
        return
    if not _in_band(record, start.moment.true_ms, record.run.scenario.engine_config().clock_skew_ms_max):
        return  # whoever took over may have done so early, by a clock that was far ahead
    names = Names(record, start.session_id)
    did = f"started tool {start.tool}" if isinstance(start, ToolStarted) else "opened a request"
    why = "its claim was gone" if row is None else f"{names.claim(row.execution_id)} had replaced its own"
    what = f"{names.node(start.node)} {did} although {why}"
    yield _start(record, "I3", what, start)


def _start(record: Record, rule: str, what: str, start: Opened | ToolStarted) -> Violation:
    return accuse(record, rule, what, session=start.session_id, node=start.node, moment=start.moment)


def i6(record: Record) -> Iterator[Violation]:
    """A local tool starts at most once per call, and only after its `tool.called` is committed."""
    started: dict[tuple[str, str], ToolStarted] = {}
    for start in record.run.ledger.tools:
        key = (start.message_id, start.call_id)
        called = any(
            isinstance(item.event, ev.ToolCalled)
            and (item.event.assistant_message_id, item.event.call_id) == key
            and item.commit.entry < start.moment.entry
            for item in record.happened.get(start.session_id, [])
        )
        wrong = "a second time" if key in started else None if called else "before its call was committed"
        started[key] = start
        if wrong is not None:
            node = Names(record, start.session_id).node(start.node)
            what = f"{node} started tool {start.tool} for call {start.call_id} {wrong}"
            yield _start(record, "I6", what, start)


def i9(record: Record) -> Iterator[Violation]:
    """After each hop the publisher's memory equals the fold of its step's committed events."""
    for moment, session_id, node, what in record.run.ledger.breaches:
        yield accuse(record, "I9", what, session=session_id, node=node, moment=moment)


TRACE_CHECKS = (i2, i3, i6, i9)
