"""What was committed, in order, with the claim rows each work found and left: the checks read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import attrs

from engine.ports import Transaction
from engine.records import Claim, EventRow
from sim.ledger import Moment

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class ClaimSeen:
    """The claim row of a session that a work touched, before and after it; None is no row."""

    session_id: str
    before: Claim | None
    after: Claim | None


@attrs.frozen(kw_only=True)
class Commit:
    """One work that was committed. `entry` is its index in the trace, `now_ms` its node's wall clock."""

    entry: int
    true_ms: float
    node: str
    task: str
    label: str
    now_ms: int
    events: tuple[EventRow, ...]
    claims: tuple[ClaimSeen, ...]


@attrs.define(kw_only=True)
class PowerLoss:
    """What a loss of power left: which commits it took, and what was wrong with the rest of the database.

    `honest` is false if a sync had lied about what was lost. `wrong` are sentences: damage, and what is there
    that shouldn't be. `survived` are commits that were under way, and whose callers never learned of them.
    """

    name: str
    moment: Moment
    honest: bool
    lost: list[Commit] = attrs.field(factory=list)
    survived: list[Commit] = attrs.field(factory=list)
    wrong: list[str] = attrs.field(factory=list)


class History:
    """All the commits of a run, of all nodes; `claims` are the rows that were there at its beginning.

    What a power loss took from the database is forgotten here, too: `losses` keeps it.
    """

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self.commits: list[Commit] = []
        self.losses: list[PowerLoss] = []
        self._changes: dict[str, list[tuple[int, float, Claim | None]]] = {
            claim.session_id: [(-1, 0.0, claim)] for claim in claims
        }

    def add(self, commit: Commit) -> None:
        """Note a commit, and the claim rows that it changed."""
        self.commits.append(commit)
        for seen in commit.claims:
            if seen.before != seen.after:
                changes = self._changes.setdefault(seen.session_id, [])
                changes.append((commit.entry, commit.true_ms, seen.after))

    def forget(self, commits: Iterable[Commit]) -> None:
        """These commits never were: the database lost them."""
        gone = {commit.entry for commit in commits}
        self.commits[:] = [commit for commit in self.commits if commit.entry not in gone]
        for changes in self._changes.values():
            changes[:] = [change for change in changes if change[0] not in gone]

    def claim(self, session_id: str) -> Claim | None:
        """The claim row now."""
        changes = self._changes.get(session_id)
        return changes[-1][2] if changes else None

    def claim_before(self, session_id: str, entry: int) -> Claim | None:
        """The claim row just before the trace entry of this index."""
        return self._last(session_id, lambda changed, _: changed < entry)

    def claim_at(self, session_id: str, true_ms: float) -> Claim | None:
        """The claim row at that moment, with all that was committed then."""
        return self._last(session_id, lambda _, changed_ms: changed_ms <= true_ms)

    def first_change(self, session_id: str, entry: int) -> tuple[int, Claim | None] | None:
        """The first commit after the entry of this index that changed the row: (its entry, the new row)."""
        for changed, _, row in self._changes.get(session_id, ()):
            if changed > entry:
                return changed, row
        return None

    def _last(self, session_id: str, counts: Callable[[int, float], bool]) -> Claim | None:
        found = None
        for entry, true_ms, row in self._changes.get(session_id, ()):
            if counts(entry, true_ms):
                found = row
        return found


class Recorder:
    """Runs a work and keeps what its latest run wrote: the time it read, its events, its claim rows.

    It never reads: a statement more inside the transaction could be the one that a fault strikes.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget earlier runs of the work."""
        self.now_ms = 0
        self.events: list[EventRow] = []
        self.touched: dict[str, None] = {}
        self.put: dict[str, Claim | None] = {}

    def wrap(self, work: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
        """`work`, recorded; it may run more than once, and only the last run counts."""

        def recorded(tx: Transaction) -> T:
            self.reset()
            self.now_ms = tx.now_ms
            return work(cast(Transaction, _Recording(tx, self)))

        return recorded

    def seen(self, history: History) -> tuple[ClaimSeen, ...]:
        """The claim rows of the sessions that were touched, in the order of their first touch.

        To be asked in the order of commits, when `history` holds those before.
        """
        rows = []
        for session_id in self.touched:
            before = history.claim(session_id)
            after = self.put.get(session_id, before)
            rows.append(ClaimSeen(session_id=session_id, before=before, after=after))
        return tuple(rows)


class _Recording:
    """A transaction that notes which events and claim rows are written through it."""

    def __init__(self, tx: Transaction, recorder: Recorder) -> None:
        self._tx = tx
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def append_event(self, row: EventRow) -> None:
        self._tx.append_event(row)
        self._recorder.touched[row.session_id] = None
        self._recorder.events.append(row)

    def put_claim(self, claim: Claim) -> None:
        self._tx.put_claim(claim)
        self._note(claim.session_id, claim)

    def delete_claim(self, session_id: str) -> None:
        self._tx.delete_claim(session_id)
        self._note(session_id, None)

    def erase_session(self, session_id: str) -> None:
        self._tx.erase_session(session_id)
        self._note(session_id, None)

    def _note(self, session_id: str, row: Claim | None) -> None:
        self._recorder.touched[session_id] = None
        self._recorder.put[session_id] = row
