"""Whether a run met what its scenario expects; one function for each kind of expectation."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import msgspec

from engine.codec import decode_json
from engine.records import Claim, SessionRow
from sim.ledger import Moment
from sim.record import Record
from sim.scenario import (
    END,
    STOPPED,
    Counted,
    Expect,
    ExpectAnswer,
    ExpectClaim,
    ExpectConfigRefused,
    ExpectEvents,
    ExpectOrder,
    ExpectRefused,
    ExpectRequests,
    ExpectStatus,
    ExpectTakeovers,
    ExpectTool,
    counts,
)
from sim.verdict import Violation


def check_expectations(record: Record) -> list[Violation]:
    """Every expectation that wasn't met, in the order of the file."""
    found = [_check(record, expect) for expect in record.run.scenario.expect]
    return [violation for violation in found if violation is not None]


def _check(record: Record, expect: Expect) -> Violation | None:
    match expect:
        case ExpectClaim():
            return _claim(record, expect)
        case ExpectEvents():
            return _events(record, expect)
        case ExpectOrder():
            return _order(record, expect)
        case ExpectAnswer():
            return _answer(record, expect)
        case ExpectRequests():
            session_id = record.session_id(expect.requests)
            opened = [one for one in record.run.ledger.opened if one.session_id == session_id]
            return _count(record, expect, len(opened), "requests were opened", expect.requests)
        case ExpectTool():
            started = sum(one.tool == expect.tool for one in record.run.ledger.tools)
            if started == expect.starts:
                return None
            return _broken(expect, f"tool {expect.tool} was started {started} times, not {expect.starts}")
        case ExpectRefused():
            found = record.refused(expect.refused, expect.node)
            return _count(record, expect, found, f"writes were refused with {expect.refused}", None)
        case ExpectConfigRefused():
            return _config_refused(record, expect)
        case ExpectStatus():
            return _status(record, expect)
        case ExpectTakeovers():
            found = _takeovers(record, record.session_id(expect.takeovers))
            return _count(record, expect, found, "take-overs happened", expect.takeovers)


def _broken(
    expect: Expect,
    sentence: str,
    *,
    session: str | None = None,
    moment: Moment | None = None,
    node: str | None = None,
) -> Violation:
    return Violation(
        rule="expect",
        sentence=sentence,
        session=session,
        node=node,
        line=expect.line or None,
        true_ms=None if moment is None else moment.true_ms,
        clocks={} if moment is None else moment.clocks,
    )


def _wanted(expect: Counted) -> str:
    if expect.count is not None:
        return f"exactly {expect.count}"
    parts = [] if expect.at_least is None else [f"at least {expect.at_least}"]
    parts += [] if expect.at_most is None else [f"at most {expect.at_most}"]
    return " and ".join(parts) or "at least 1"


def _count(record: Record, expect: Counted, found: int, what: str, session: str | None) -> Violation | None:
    if counts(expect, found):
        return None
    return _broken(expect, f"{found} {what}, expected {_wanted(expect)}", session=session)


# --- claims ------------------------------------------------------------------------------------------


def _claim(record: Record, expect: ExpectClaim) -> Violation | None:
    session_id = record.session_id(expect.claim)
    history, ledger = record.run.database.history, record.run.ledger
    if expect.at == END:
        return _compare_claim(
            record, expect, record.run.database.reader().claim(session_id), None, "at the end"
        )
    name = expect.at or expect.after
    assert name is not None
    moment = ledger.fired.get(name)
    if moment is None:
        return _broken(
            expect, f"{name} never happened, so there is no claim to look at", session=expect.claim
        )
    if expect.at is not None:
        row = history.claim_before(session_id, moment.entry)
        return _compare_claim(record, expect, row, moment, f"just before {name}")
    changed = history.first_change(session_id, moment.entry)
    if changed is None:
        return _broken(expect, f"the claim never changed after {name}", session=expect.claim, moment=moment)
    entry, row = changed
    until = attrs.evolve(moment, entry=entry + 1)  # with what was committed together with the change
    return _compare_claim(record, expect, row, until, f"at its first change after {name}")


def _compare_claim(
    record: Record,
    expect: ExpectClaim,
    row: Claim | None,
    moment: Moment | None,
    when: str,
    until: int | None = None,
) -> Violation | None:
    """Compare the row; `until` bounds the trace entries that count, by default those before `moment`."""
    if until is None and moment is not None:
        until = moment.entry
    wrong: list[str] = []
    if (row is not None) != expect.exists:
        wrong.append("there is no claim" if row is None else f"there is a claim in phase {row.phase}")
    if row is not None and expect.exists:
        wrong = _differences(record, expect, row, until)
    if not wrong:
        return None
    return _broken(expect, f"{when}, {'; '.join(wrong)}", session=expect.claim, moment=moment)


def _differences(record: Record, expect: ExpectClaim, row: Claim, until: int | None) -> list[str]:
    wrong: list[str] = []
    if expect.phase is not None and row.phase != expect.phase:
        wrong.append(f"the claim's phase is {row.phase}, not {expect.phase}")
    if expect.expires_at is not None and row.expires_at != expect.expires_at:
        wrong.append(f"expires_at is {row.expires_at}, not {expect.expires_at}")
    if expect.message is not None and (row.assistant_message_id is not None) != expect.message:
        wrong.append(f"the message id is {row.assistant_message_id!r}")
    if expect.seq_of is not None:
        seqs = [
            item.row.seq
            for item in record.happened.get(row.session_id, [])
            if item.row.type == expect.seq_of and (until is None or item.commit.entry < until)
        ]
        if not seqs or row.assistant_seq != seqs[-1]:
            latest = seqs[-1] if seqs else "none"
            wrong.append(f"assistant_seq is {row.assistant_seq}, and the latest {expect.seq_of} has {latest}")
    return wrong


# --- events ------------------------------------------------------------------------------------------


def _events(record: Record, expect: ExpectEvents) -> Violation | None:
    session_id = record.session_id(expect.events)
    found = [item for item in record.happened.get(session_id, []) if item.row.type == expect.type]
    wanted = dict(expect.having)
    if expect.same_step_as is not None:
        first = next(
            (i for i in record.happened.get(session_id, []) if i.row.type == expect.same_step_as), None
        )
        if first is None:
            return _broken(
                expect, f"there is no {expect.same_step_as} to compare with", session=expect.events
            )
        wanted["assistant_message_id"] = decode_json(first.row.data)["assistant_message_id"]
    matching = [item for item in found if _has(decode_json(item.row.data), wanted)]
    like = f" with {msgspec.json.encode(wanted).decode()}" if wanted else ""
    if counts(expect, len(matching)):
        return None
    return _broken(
        expect,
        f"the log holds {len(matching)} {expect.type}{like} (of {len(found)}), expected {_wanted(expect)}",
        session=expect.events,
    )


def _has(data: dict[str, object], wanted: dict[str, object]) -> bool:
    """Whether `data` holds what is wanted; a table is compared key by key."""
    for key, value in wanted.items():
        have = data.get(key)
        if isinstance(value, dict) and isinstance(have, dict):
            if not _has(have, value):
                return False
        elif have != value:
            return False
    return True


def _order(record: Record, expect: ExpectOrder) -> Violation | None:
    types = [row.type for row in record.events(record.session_id(expect.order))]
    if expect.types is not None and list(expect.types) != types:
        return _broken(
            expect, f"the log is {', '.join(types)}; {_first_off(expect.types, types)}", session=expect.order
        )
    if expect.ends_with is not None and types[-len(expect.ends_with) :] != list(expect.ends_with):
        return _broken(expect, f"the log ends with {', '.join(types[-8:])}", session=expect.order)
    if expect.contains is not None:
        rest = iter(types)
        for wanted in expect.contains:
            if wanted not in rest:
                sentence = f"no {wanted} where it was expected; the log is {', '.join(types)}"
                return _broken(expect, sentence, session=expect.order)
    return None


def _first_off(wanted: Sequence[str], types: Sequence[str]) -> str:
    for seq, (want, have) in enumerate(zip(wanted, types, strict=False)):
        if want != have:
            return f"at seq {seq} {want} was expected, not {have}"
    return f"{len(wanted)} events were expected, not {len(types)}"


# --- the rest ----------------------------------------------------------------------------------------


def _answer(record: Record, expect: ExpectAnswer) -> Violation | None:
    ledger = record.run.ledger
    answer = ledger.answers.get(expect.answer)
    if answer is None and expect.answer in ledger.fired:
        answer = STOPPED
    if answer in expect.allowed:
        return None
    said = "never happened" if answer is None else f"was answered {answer}"
    return _broken(
        expect,
        f"{expect.answer} {said}, expected {' or '.join(expect.allowed)}",
        moment=ledger.fired.get(expect.answer),
    )


def _config_refused(record: Record, expect: ExpectConfigRefused) -> Violation | None:
    error = record.run.config_error
    if error is None:
        return _broken(expect, "the engine accepted the configuration")
    if expect.config_refused in str(error):
        return None
    return _broken(expect, f"the configuration was refused with other words: {error}")


def _status(record: Record, expect: ExpectStatus) -> Violation | None:
    reader = record.run.database.reader()
    session_id = record.session_id(expect.status)
    row = reader.session(session_id)
    assert row is not None
    recovery = reader.recovery(session_id)
    status = _status_of(row, reader.parked_count(session_id))
    if recovery is not None and recovery.recovery_error is not None:
        status = "quarantined"
    if status == expect.is_:
        return None
    return _broken(expect, f"the session is {status}, not {expect.is_}", session=expect.status)


def _status_of(row: SessionRow, parked: int) -> str:
    return "parked" if parked and row.status != "running" else row.status


def _takeovers(record: Record, session_id: str) -> int:
    """Commits in which the claim went from one execution straight to another."""
    return sum(
        1
        for commit in record.commits
        for seen in commit.claims
        if seen.session_id == session_id
        and seen.before is not None
        and seen.after is not None
        and seen.before.execution_id != seen.after.execution_id
    )
