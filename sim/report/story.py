"""A judged run as plain data: marks on lanes, lease bars, bands of trouble, and every clock's readings.

Times are true time in milliseconds; `index` is a trace entry's, and orders what happened at one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from engine.records import JSON, Claim
from sim.project import MakeProject, Project
from sim.record import Record
from sim.report.detail import claim_changes, detail
from sim.run import Check, Result, judge
from sim.scenario import DISK_KINDS, Scenario
from sim.tape import Tape
from sim.trace import Entry
from sim.verdict import Violation
from sim.words.excerpt import once

CLIENTS, STORE, PROVIDER = "clients", "store", "provider"
"""The lanes that aren't a node's."""

MARKS_MAX = 6_000
"""A page with more would be slow; what comes later is left out, and the page says so."""

ENTRIES_BEFORE = 3
"""How many trace entries a violation shows before the one that it is about."""


@attrs.frozen(kw_only=True)
class Mark:
    """One thing that happened: in which lane, what kind of thing, and everything known about it."""

    index: int
    ms: float
    lane: str
    kind: str
    label: str
    task: str = ""
    execution: str | None = None
    detail: JSON = None


@attrs.frozen(kw_only=True)
class Lease:
    """A claim that one execution held; `changes` are (ms, index, what changed). `until_ms` ends it."""

    node: str
    session: str
    execution: str
    ms: float
    index: int
    until_ms: float
    until_index: int
    taken_over: bool
    changes: Sequence[tuple[float, int, JSON]]


@attrs.frozen(kw_only=True)
class Band:
    """A while in which a node was `paused` or `dead`."""

    node: str
    kind: str
    ms: float
    index: int
    until_ms: float
    until_index: int


@attrs.frozen(kw_only=True)
class Broken:
    """A violation and where to look; `ms` is None where it speaks of the whole run."""

    rule: str
    sentence: str
    session: str | None
    node: str | None
    ms: float | None
    index: int | None
    line: int | None


@attrs.frozen(kw_only=True)
class Story:
    """One run. `clocks` holds, for each node, what its wall clock showed at each of `stops`."""

    scenario: str
    proves: str
    verdict: str
    digest: str
    gates: int
    nodes: Sequence[str]
    sessions: Sequence[str]
    end_ms: float
    end_index: int
    executions: Sequence[str]
    marks: Sequence[Mark]
    marks_left_out: int
    leases: Sequence[Lease]
    bands: Sequence[Band]
    broken: Sequence[Broken]
    stops: Sequence[float]
    clocks: dict[str, Sequence[int]]

    def as_json(self) -> dict[str, JSON]:
        """Plain data."""
        return attrs.asdict(self)


def tell(
    scenario: Scenario, tape: Tape, checks: Sequence[Check] = (), *, project: MakeProject = Project
) -> tuple[Story, Result]:
    """Run a scenario from a tape, judge it as `run` does, and tell it."""
    told: list[Story] = []

    def listen(record: Record) -> Iterable[Violation]:
        told.append(_story(record))
        return ()

    result = judge(scenario, tape, checks=(*checks, listen), project=project)
    whole = attrs.evolve(
        told[0],
        verdict=result.verdict,
        digest=result.digest,
        broken=[_broken(violation) for violation in result.violations],
    )
    return whole, result


def _story(record: Record) -> Story:
    run = record.run
    marks = _marks(record)
    left_out = max(0, len(marks) - MARKS_MAX)
    marks = marks[:MARKS_MAX]
    leases, bands = _leases(record), _bands(record)
    timed: list[Lease | Band] = [*leases, *bands]
    stops = sorted(
        {0.0, run.virtual_ms}
        | {mark.ms for mark in marks}
        | {moment for item in timed for moment in (item.ms, item.until_ms)}
    )
    readings = [record.clocks_at(moment) for moment in stops]
    return Story(
        scenario=run.scenario.name,
        proves=run.scenario.proves,
        verdict="",
        digest="",
        gates=run.gates,
        nodes=list(run.nodes),
        sessions=record.sessions(),
        end_ms=run.virtual_ms,
        end_index=run.trace.count,
        executions=list(dict.fromkeys(lease.execution for lease in leases)),
        marks=marks,
        marks_left_out=left_out,
        leases=leases,
        bands=bands,
        broken=(),
        stops=stops,
        clocks={name: [reading[name] for reading in readings] for name in run.nodes},
    )


def _broken(violation: Violation) -> Broken:
    around = violation.around
    there = around[ENTRIES_BEFORE] if len(around) > ENTRIES_BEFORE else None
    exact = there is not None and there.true_ms == violation.true_ms
    index = there.index if there is not None and exact else None
    return Broken(
        rule=violation.rule,
        sentence=violation.sentence,
        session=violation.session,
        node=violation.node,
        ms=violation.true_ms,
        index=index if violation.entry is None else violation.entry,
        line=violation.line,
    )


# --- marks -------------------------------------------------------------------------------------------

CHUNKS = ("TextChunk", "ReasoningChunk", "ToolInputChunk")


def _marks(record: Record) -> list[Mark]:
    """Everything that has a place on a lane, in the order of true time."""
    executions = _Executions(record)
    entries = once(record.run.trace.entries)
    found = [mark for entry in entries for mark in _mark(entry, executions.of)]
    found += _client_marks(record)
    return sorted(found, key=lambda mark: (mark.ms, mark.index))


def _mark(entry: Entry, execution_of: Callable[[Entry], str | None]) -> Iterable[Mark]:
    placed = _lane_and_kind(entry)
    if placed is None:
        return
    lane, kind = placed
    yield Mark(
        index=entry.index,
        ms=entry.true_ms,
        lane=lane,
        kind=kind,
        label=entry.label or entry.kind,
        task=f"{entry.node}/{entry.task}".rstrip("/"),
        execution=execution_of(entry),
        detail=detail(entry),
    )


def _lane_and_kind(entry: Entry) -> tuple[str, str] | None:
    node = entry.node.rpartition(".")[0] or entry.node
    match entry.kind:
        case "commit" | "refused" | "disk":
            return STORE, entry.kind
        case "fault" if entry.label in DISK_KINDS:
            return STORE, entry.kind
        case "provider":
            said = "chunk" if entry.label in CHUNKS else "said"
            return PROVIDER, "open" if entry.label == "open" else said
        case "tool" | "fault" | "node":
            return node, entry.kind
        case "listener":
            return node, "told"
        case "gate" if entry.label == "doorbell":
            return node, "bell"
        case _:
            return None


def _client_marks(record: Record) -> Iterable[Mark]:
    """What clients did, and when; faults have marks of their own, on their nodes or in the store's lane."""
    ledger = record.run.ledger
    faults = {entry.fields["name"] for entry in record.run.trace.entries if entry.kind == "fault"}
    for name, moment in ledger.fired.items():
        answer = ledger.answers.get(name)
        if answer is None and name in faults:
            continue
        yield Mark(
            index=moment.entry,
            ms=moment.true_ms,
            lane=CLIENTS,
            kind="action",
            label=name,
            detail={"answer": answer, "clocks": dict(moment.clocks)},
        )


class _Executions:
    """Whose doing an entry was, as far as can be told."""

    def __init__(self, record: Record) -> None:
        ledger = record.run.ledger
        self._by_message = {opened.message_id: opened.execution_id for opened in ledger.opened}
        self._by_call = {(start.node, start.call_id): start.execution_id for start in ledger.tools}

    def of(self, entry: Entry) -> str | None:
        fields = entry.fields
        match entry.kind:
            case "commit" | "refused":
                return next((row.execution_id for row in fields["events"] if row.execution_id), None)
            case "provider" if entry.label == "open":
                return str(fields["request"].execution_id)
            case "provider":
                return self._by_message.get(fields["message_id"])
            case "tool":
                return self._by_call.get((entry.node, fields["call"]))
            case _:
                return None


# --- leases and bands --------------------------------------------------------------------------------


@attrs.define
class _Open:
    """A lease whose end isn't known yet."""

    claim: Claim
    node: str
    ms: float
    index: int
    changes: list[tuple[float, int, JSON]]

    def ended(self, ms: float, index: int, *, taken_over: bool) -> Lease:
        return Lease(
            node=self.node,
            session=self.claim.session_id,
            execution=self.claim.execution_id,
            ms=self.ms,
            index=self.index,
            until_ms=ms,
            until_index=index,
            taken_over=taken_over,
            changes=self.changes,
        )


def _leases(record: Record) -> list[Lease]:
    leases: list[Lease] = []
    held: dict[str, _Open] = {}
    for commit in record.commits:
        for seen in commit.claims:
            open_lease, row = held.get(seen.session_id), seen.after
            if open_lease is not None and (row is None or row.execution_id != open_lease.claim.execution_id):
                del held[seen.session_id]
                leases.append(open_lease.ended(commit.true_ms, commit.entry, taken_over=row is not None))
            if row is None:
                continue
            if seen.session_id not in held:
                node = commit.node.rpartition(".")[0]
                held[seen.session_id] = _Open(row, node, commit.true_ms, commit.entry, [])
            changes = claim_changes(seen.before, row)
            if changes:
                held[seen.session_id].changes.append((commit.true_ms, commit.entry, changes))
    run = record.run
    leases += [each.ended(run.virtual_ms, run.trace.count, taken_over=False) for each in held.values()]
    return sorted(leases, key=lambda lease: lease.index)


def _bands(record: Record) -> list[Band]:
    """When nodes stood still or were without power, until they ran again or their next start."""
    run = record.run
    bands: list[Band] = []
    since: dict[str, tuple[str, Entry]] = {}
    for entry in run.trace.entries:
        name = entry.node.rpartition(".")[0]
        begun = since.get(name)
        changed = entry.kind == "node"
        reborn = begun is not None and begun[0] == "dead" and entry.node != begun[1].node
        if begun is not None and (changed or reborn):
            del since[name]
            bands.append(_band(name, begun, entry.true_ms, entry.index))
        if changed and entry.label != "running":
            since[name] = (entry.label, entry)
    bands += [_band(name, begun, run.virtual_ms, run.trace.count) for name, begun in since.items()]
    return bands


def _band(node: str, begun: tuple[str, Entry], ms: float, index: int) -> Band:
    kind, entry = begun
    return Band(node=node, kind=kind, ms=entry.true_ms, index=entry.index, until_ms=ms, until_index=index)
