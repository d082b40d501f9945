"""What a run is found guilty of: violations, as sentences first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from sim.trace import Entry


@attrs.frozen(kw_only=True)
class Violation:
    """A broken expectation or invariant.

    `rule` is an invariant's id or `expect`; `true_ms` and `clocks` (what each node's wall clock showed) are
    None and empty where the rule speaks of the whole run. `around` are the trace entries next to it.
    """

    rule: str
    sentence: str
    session: str | None = None
    node: str | None = None
    true_ms: float | None = None
    clocks: Mapping[str, int] = attrs.field(factory=dict)
    line: int | None = None
    around: Sequence[Entry] = ()

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "rule": self.rule,
            "sentence": self.sentence,
            "session": self.session,
            "node": self.node,
            "true_ms": self.true_ms,
            "clocks": dict(self.clocks),
            "line": self.line,
            "around": [str(entry) for entry in self.around],
        }

    def __str__(self) -> str:
        where = [f"session {self.session}"] if self.session else []
        where += [f"node {self.node}"] if self.node else []
        where += [f"line {self.line}"] if self.line else []
        if self.true_ms is not None:
            where.append(f"at {self.true_ms:g} ms true time")
        where += [f"{node}'s clock {ms} ms" for node, ms in self.clocks.items()]
        return f"{self.rule}: {self.sentence}" + (f" ({', '.join(where)})" if where else "")
