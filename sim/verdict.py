"""What a run is found guilty of: violations, as sentences first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from sim.trace import Entry
from sim.words import entry as entry_line

SESSION = "ses_"
"""What a simulated session's id begins with; the scenario's name of it follows."""


@attrs.frozen(kw_only=True)
class Violation:
    """A broken expectation or invariant.

    `rule` is an invariant's id or `expect`; `true_ms` and `clocks` (what each node's wall clock showed) are
    None and empty where the rule speaks of the whole run. `entry` is the index of the trace entry at which it
    broke, if there is one, and `around` are the entries that show it. `detail` is what broke with the ids
    that the sentence has names for.
    """

    rule: str
    sentence: str
    detail: str | None = None
    session: str | None = None
    node: str | None = None
    true_ms: float | None = None
    clocks: Mapping[str, int] = attrs.field(factory=dict)
    line: int | None = None
    entry: int | None = None
    around: Sequence[Entry] = ()

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "rule": self.rule,
            "sentence": self.sentence,
            "detail": self.detail,
            "session": self.session,
            "node": self.node,
            "true_ms": self.true_ms,
            "clocks": dict(self.clocks),
            "line": self.line,
            "around": [entry_line.line(entry) for entry in self.around],
        }

    def __str__(self) -> str:
        """The sentence, and in brackets the rule and the place."""
        return f"{self.sentence} ({', '.join(self._place())})"

    def lines(self) -> list[str]:
        """The whole message: the sentence, the rule and the place, the entries that show it."""
        return [
            self.sentence,
            ", ".join(self._place()),
            *(entry_line.line(entry) for entry in self.around),
        ]

    def _place(self) -> Iterator[str]:
        yield self.rule
        if self.session:
            yield f"session {self.session.removeprefix(SESSION)}"
        if self.node:
            yield f"node {self.node}"
        if self.line:
            yield f"line {self.line}"
        if self.true_ms is not None:
            yield f"at {self.true_ms / 1000:.3f} s true time"
        for node, ms in self.clocks.items():
            yield f"{node}'s clock {ms / 1000:.3f} s"
