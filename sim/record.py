"""A finished run, read once: what its expectations and checks look at."""

from __future__ import annotations

import attrs

from engine.codec import decode_row
from engine.events import Event
from engine.records import Claim, EventRow
from sim.history import Commit
from sim.ledger import Moment
from sim.trace import Entry
from sim.world import Run

WHOLE = 1_000_000
MINUTE_MS = 60_000
YEAR_MS = 365 * 24 * 60 * MINUTE_MS


@attrs.frozen(kw_only=True)
class Happened:
    """One committed event and the commit that brought it."""

    commit: Commit
    row: EventRow
    event: Event


class Record:
    """Commits, events and claims of a run by session, and the owners of executions."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.commits = run.database.history.commits
        self.happened: dict[str, list[Happened]] = {}
        for commit in self.commits:
            for row in commit.events:
                item = Happened(commit=commit, row=row, event=decode_row(row).event)
                self.happened.setdefault(row.session_id, []).append(item)

    def session_id(self, name: str) -> str:
        """The id of a session that the scenario names."""
        return f"ses_{name}"

    def events(self, session_id: str) -> list[EventRow]:
        """The final log."""
        return self.run.database.reader().events(session_id, -1, WHOLE)

    def sessions(self) -> list[str]:
        """Ids of the scenario's sessions."""
        return [self.session_id(spec.name) for spec in self.run.scenario.sessions]

    def claim_before(self, session_id: str, moment: Moment) -> Claim | None:
        """The claim row just before a moment."""
        return self.run.database.history.claim_before(session_id, moment.entry)

    def clocks_at(self, true_ms: float) -> dict[str, int]:
        """What each node's wall clock showed then."""
        return {name: node.wall.read_ms(int(true_ms * 1_000_000)) for name, node in self.run.nodes.items()}

    @property
    def date_ms(self) -> int:
        """What a right clock shows at the true time 0: 0, or the date that all clocks are set to.

        Where every clock is a year or more away from the true time, that is a date and no error; it is a
        whole minute, which each clock misses by its own error.
        """
        offsets = sorted(node.spec.clock.offset_ms for node in self.run.nodes.values())
        if min(abs(offset) for offset in offsets) < YEAR_MS:
            return 0
        return round(offsets[(len(offsets) - 1) // 2] / MINUTE_MS) * MINUTE_MS

    def clock_errors_at(self, true_ms: float) -> dict[str, float]:
        """How wrong each node's wall clock was then, in milliseconds."""
        return {name: ms - self.date_ms - true_ms for name, ms in self.clocks_at(true_ms).items()}

    def moment_of(self, commit: Commit) -> Moment:
        """When a commit was made."""
        clocks = self.clocks_at(commit.true_ms)
        return Moment(entry=commit.entry, true_ms=commit.true_ms, clocks=clocks)

    def moment_at(self, true_ms: float) -> Moment:
        """A moment of true time, when all of its entries have been written."""
        entry = sum(one.true_ms <= true_ms for one in self.run.trace.entries)
        return Moment(entry=entry, true_ms=true_ms, clocks=self.clocks_at(true_ms))

    def around(self, entry: int, before: int = 3, after: int = 3) -> list[Entry]:
        """The trace entries around one, gates and timers left out."""
        entries = self.run.trace.entries
        kinds = ("commit", "refused", "provider", "tool", "fault", "node", "disk")
        past = [one for one in entries[:entry] if one.kind in kinds][-before:]
        return past + [one for one in entries[entry:] if one.kind in kinds][:after]

    def refused(self, error: str, node: str | None) -> int:
        """How many writes were refused with an error of this class."""
        return sum(
            1
            for entry in self.run.trace.entries
            if entry.kind == "refused"
            and type(entry.fields.get("error")).__name__ == error
            and (node is None or entry.node.rpartition(".")[0] == node)
        )
