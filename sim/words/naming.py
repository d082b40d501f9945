"""Short names for what a run's ids stand for: who reads a sentence knows nodes, steps and inputs, not ids.

`exe_a.1_k3fq2m7a_2` is "a's execution", or "a's 2nd execution" where that node had more than one of the
session; `msg_…` is "step 2" and `inp_…` is "input 2", counted in the order of the session's log. The names
are exact within their session, which a violation names beside them.
"""

from __future__ import annotations

import re

from engine import events as ev
from sim.record import Record

SESSION = "ses_"
ID = re.compile(
    r"(?:\b(execution|step|input|session) )?'?\b(exe|msg|inp|ses)_([A-Za-z0-9-]+(?:[._][A-Za-z0-9-]+)*)'?"
)
"""An id, and the word before it that its name makes superfluous."""

DRAWN_BY = re.compile(r"exe_(.+?\.\d+)_")
"""Simulated ids begin with the incarnation that drew them."""


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"


def seconds(ms: float) -> str:
    """Milliseconds as `31.0 s`."""
    return f"{ms / 1000:.1f} s"


def session_name(session_id: str) -> str:
    """The scenario's name of a session."""
    return session_id.removeprefix(SESSION)


class Names:
    """The names of one run's nodes and, within one session, of its executions, steps and inputs."""

    def __init__(self, record: Record, session_id: str | None) -> None:
        started = [entry.node for entry in record.run.trace.entries if entry.node.rpartition(".")[0]]
        lives: dict[str, dict[str, None]] = {}
        for key in dict.fromkeys(started):
            lives.setdefault(key.rpartition(".")[0], {})[key] = None
        self._lives = lives
        self._executions: list[str] = []
        self._steps: list[str] = []
        self._inputs: list[str] = []
        if session_id is not None:
            self._read(record, session_id)

    def _read(self, record: Record, session_id: str) -> None:
        found: dict[str, None] = {}
        for commit in record.commits:
            for seen in commit.claims:
                if seen.session_id == session_id and seen.after is not None:
                    found[seen.after.execution_id] = None
        self._executions = list(found)
        for item in record.happened.get(session_id, []):
            match item.event:
                case ev.StepStarted(assistant_message_id=message_id):
                    self._steps.append(message_id)
                case ev.InputAdmitted(input_id=input_id):
                    self._inputs.append(input_id)

    def node(self, key: str) -> str:
        """A node by its name, and by its incarnation (`a.2`) only where the run had more than one of it."""
        name = key.rpartition(".")[0] or key
        return name if len(self._lives.get(name, ())) < 2 else key

    def execution(self, execution_id: str) -> str:
        """`a's execution`, or `a's 2nd execution`."""
        drawn = DRAWN_BY.match(execution_id)
        if drawn is None:
            return f"execution {execution_id}"
        node = self.node(drawn[1])
        siblings = [each for each in self._executions if each.startswith(drawn[0])]
        if len(siblings) < 2 or execution_id not in siblings:
            return f"{node}'s execution"
        return f"{node}'s {ordinal(siblings.index(execution_id) + 1)} execution"

    def claim(self, execution_id: str, *, by: str | None = None) -> str:
        """`a's claim`; `its claim` in a sentence whose subject is the incarnation `by` that drew the id."""
        drawn = DRAWN_BY.match(execution_id)
        if drawn is not None and drawn[1] == by:
            return "its claim"
        if drawn is None:
            return f"the claim of execution {execution_id}"
        return f"{self.execution(execution_id).removesuffix(' execution')} claim"

    def step(self, message_id: str) -> str:
        """`step 2`, the second that started in its session."""
        if message_id in self._steps:
            return f"step {self._steps.index(message_id) + 1}"
        return "a step that never started"

    def input(self, input_id: str) -> str:
        """`input 2`, the second that was admitted in its session."""
        if input_id in self._inputs:
            return f"input {self._inputs.index(input_id) + 1}"
        return "an input that was never admitted"

    def plain(self, text: str) -> str:
        """A text with names in place of ids."""

        def name(found: re.Match[str]) -> str:
            word, kind, rest = found.groups()
            whole = f"{kind}_{rest}"
            match kind:
                case "exe":
                    return self.execution(whole)
                case "msg":
                    return self.step(whole)
                case "inp":
                    return self.input(whole)
                case _:
                    return f"session {rest}" if word else rest

        return ID.sub(name, text)
