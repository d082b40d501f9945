"""A violation's sentence: what led there, in plain words and in the order of true time, then what broke.

"a stalled 9.2 s from 22.0 s on with its clock 6.0 s behind; b took over at 31.0 s; …" is made of clauses.
Those before the last are the latest faults that struck a node concerned, and the latest take-overs of the
session.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

import attrs

from sim.history import ClaimSeen, Commit
from sim.ledger import FaultApplied, Moment
from sim.record import Record
from sim.verdict import Violation
from sim.words.excerpt import excerpt
from sim.words.faults import CLOCK_ERROR_MS, LASTING, OF_THE_MACHINE, ON_CLOCKS, befell, jumped, way
from sim.words.naming import Names, seconds

FAULTS_MAX = 3
TAKEOVERS_MAX = 2
HOLDERS_MAX = 3
LENGTH_MAX = 300

OF_CLAIMS = ("I1", "I2", "I3", "I7", "I16")
"""The rules that a wrong clock may break: they speak of leases."""


@attrs.frozen(kw_only=True, order=True)
class Clause:
    """Something that led to a breach; `entry` orders what happened at one moment of true time."""

    true_ms: float
    entry: int
    text: str


def accuse(
    record: Record,
    rule: str,
    what: str,
    *,
    session: str | None = None,
    node: str | None = None,
    moment: Moment | None = None,
) -> Violation:
    """A violation at `moment` (None: it speaks of the whole run), told with what led to it.

    `what` is the last clause; the ids in it become names, and the violation's `detail` keeps them. `node` is
    the node, or its incarnation, that broke it.
    """
    until = record.run.trace.count if moment is None else moment.entry
    names = Names(record, session)
    nodes = _concerned(record, session, [] if node is None else [node], until)
    led = what_led(record, names, session, nodes, until, clocks=rule in OF_CLAIMS)
    entries = () if moment is None else excerpt(record, until, session, nodes)
    return Violation(
        rule=rule,
        sentence=one_sentence([clause.text for clause in led], names.plain(what)),
        detail=what,
        session=session,
        node=node,
        true_ms=None if moment is None else moment.true_ms,
        clocks={} if moment is None else moment.clocks,
        entry=None if moment is None else moment.entry,
        around=entries,
    )


def one_sentence(clauses: Sequence[str], what: str) -> str:
    """The clauses and what broke, as one sentence of at most `LENGTH_MAX` characters.

    Where they are too long, the earliest clauses go first, and at last the end of `what`.
    """
    said = _unbroken(what)
    led = [_unbroken(clause) for clause in clauses]
    while led and sum(len(each) + 2 for each in led) + len(said) > LENGTH_MAX:
        led.pop(0)
    if len(said) > LENGTH_MAX:
        said = f"{said[: LENGTH_MAX - 2].rstrip()} …"
    return "; ".join([*led, said])


def _unbroken(text: str) -> str:
    """On one line, and without a full stop between its parts or at its end."""
    joined = " ".join(text.replace(". ", "; ").replace(".\n", "; ").split()).rstrip(".;: ")
    return joined or "something broke"


# --- who and what ------------------------------------------------------------------------------------


def what_led(
    record: Record, names: Names, session: str | None, nodes: Sequence[str], until: int, *, clocks: bool
) -> list[Clause]:
    """The latest faults of these nodes and take-overs of the session before a trace entry, in their order.

    What was wrong with their clocks is told if `clocks` matter to the rule, or somebody took over by one.
    """
    takeovers = [] if session is None else list(_takeovers(record, names, session, until))[-TAKEOVERS_MAX:]
    clocks = clocks or bool(takeovers)
    faults = sorted(dict.fromkeys(_faults(record, nodes, until, clocks=clocks)))[-FAULTS_MAX:]
    wrong = _wrong_clocks(record, nodes, until, faults) if clocks else ()
    return [*wrong, *sorted([*faults, *takeovers])]


def _concerned(record: Record, session: str | None, nodes: Sequence[str], until: int) -> list[str]:
    """The names of the nodes that were given and of the session's latest holders; all of them if the
    breach is nobody's."""
    found = [_name(node) for node in nodes]
    if session is not None:
        holders = [commit.node for commit, seen in _changes_of_holder(record, session, until)]
        found += [_name(node) for node in holders[-HOLDERS_MAX:]]
    elif not nodes:
        found = list(record.run.nodes)
    return list(dict.fromkeys(found))


def _name(key: str) -> str:
    return key.rpartition(".")[0] or key


def _changes_of_holder(record: Record, session: str, until: int) -> Iterator[tuple[Commit, ClaimSeen]]:
    """The commits before a trace entry by which the session's claim came to somebody: under a new id, or,
    where the engine is broken, under the old one."""
    holder = None
    for commit in record.commits:
        if commit.entry >= until:
            return
        for seen in commit.claims:
            before, after = seen.before, seen.after
            if seen.session_id != session or after is None:
                continue
            fresh = before is None or before.execution_id != after.execution_id
            if fresh or (
                commit.node != holder and before is not None and before.expires_at < after.expires_at
            ):
                holder = commit.node
                yield commit, seen


def _takeovers(record: Record, names: Names, session: str, until: int) -> Iterator[Clause]:
    for commit, seen in _changes_of_holder(record, session, until):
        if seen.before is not None:
            node, whose = names.node(commit.node), names.execution(seen.before.execution_id)
            own = f"{node}'s"
            fresh = seen.after is not None and seen.after.execution_id != seen.before.execution_id
            did = "took over" if fresh else f"went on with {whose.replace(own, 'its', 1)}"
            text = f"{node} {did} at {seconds(commit.true_ms)}"
            yield Clause(true_ms=commit.true_ms, entry=commit.entry, text=text)


# --- faults and clocks -------------------------------------------------------------------------------


def _faults(record: Record, nodes: Sequence[str], until: int, *, clocks: bool) -> Iterator[Clause]:
    """What befell these nodes before a trace entry, and, with `clocks`, their clocks."""
    end_ms = _time_of(record, until)
    told: dict[str, float] = {}
    for fault in [*record.run.ledger.faults, *_lasting_still(record)]:
        if fault.node in nodes and fault.moment.entry < until and (clocks or fault.kind not in ON_CLOCKS):
            then = _clock_then(record, fault, told) if clocks else ""
            text = befell(record, fault, end_ms) + then
            yield Clause(true_ms=fault.moment.true_ms, entry=fault.moment.entry, text=text)
    for name in nodes if clocks else ():
        for step in record.run.nodes[name].spec.clock.steps:
            if step.at_s * 1000 <= end_ms:
                text = jumped(name, step.by_ms, step.at_s * 1000)
                yield Clause(true_ms=step.at_s * 1000, entry=-1, text=text)


def _time_of(record: Record, entry: int) -> float:
    entries = record.run.trace.entries
    return entries[entry].true_ms if entry < len(entries) else record.run.virtual_ms


def _lasting_still(record: Record) -> Iterator[FaultApplied]:
    """Faults that had struck and weren't over when the run ended: the ledger has those that were."""
    over = collections.Counter((fault.name, fault.node) for fault in record.run.ledger.faults)
    for entry in record.run.trace.entries:
        if entry.kind != "fault" or entry.label not in LASTING:
            continue
        struck = (str(entry.fields.get("name")), entry.node)
        over[struck] -= 1
        if over[struck] < 0:
            clocks = record.clocks_at(entry.true_ms)
            moment = Moment(entry=entry.index, true_ms=entry.true_ms, clocks=clocks)
            yield FaultApplied(moment=moment, name=struck[0], kind=entry.label, node=entry.node)


def _clock_then(record: Record, fault: FaultApplied, told: dict[str, float]) -> str:
    """How wrong the node's clock was then, unless that was said; `told` remembers what was."""
    error = record.clock_errors_at(fault.moment.true_ms).get(fault.node, 0.0)
    known = told.get(fault.node, 0.0)
    if fault.kind in (*ON_CLOCKS, *OF_THE_MACHINE) or abs(error - known) < CLOCK_ERROR_MS:
        return ""
    told[fault.node] = error
    return f" with its clock {way(error)}"


def _wrong_clocks(
    record: Record, nodes: Sequence[str], until: int, faults: Sequence[Clause]
) -> Iterator[Clause]:
    """The clocks that are wrong at a trace entry, of those nodes whose faults don't speak of them."""
    errors = record.clock_errors_at(_time_of(record, until))
    for name in nodes:
        error = errors[name]
        said = any(
            each.text.startswith(f"{name}'s clock ")
            or (each.text.startswith(f"{name} ") and " with its clock " in each.text)
            for each in faults
        )
        if abs(error) >= CLOCK_ERROR_MS and not said:
            yield Clause(true_ms=0.0, entry=-1, text=f"{name}'s clock was {way(error)}")
