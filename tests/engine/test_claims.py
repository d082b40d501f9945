"""The claim table, cell by cell; the fence; and what the caller of a refused command sees."""

from __future__ import annotations

import attrs
import pytest

from engine import claims
from engine.claims import (
    COMMANDS,
    EXPIRED_AT_ONCE,
    HANDED_OVER,
    MOVES,
    TABLE,
    Acquire,
    Lost,
    Renew,
    RequestInterrupt,
    Rule,
    decide,
    granted,
)
from engine.errors import ClaimCancelling, ClaimLost
from engine.records import Phase
from tests.engine.claim_samples import ASKS, FACTS, LEASE, MINE, NOW, answer, make_row

# --- every cell --------------------------------------------------------------------------------------

# Live rows of my own. Where two words stand, the second holds once an interrupt was asked for.
GRID = """
              absent  ready           unknown         continue        safe            cancelling cancelled
acquire       granted held            held            held            held            held       held
renew         lost    granted         granted         granted         granted         granted    granted
running       lost    granted/refused granted/refused granted/refused granted/refused refused    refused
settling      lost    granted         granted         granted         granted         granted    refused
interrupt     lost    granted         granted         granted         granted         granted    granted
clear         lost    deleted/refused deleted/refused deleted/refused deleted/refused refused    deleted
drop          lost    deleted         deleted         deleted         deleted         deleted    deleted
hand-over     lost    granted/refused granted/refused granted/refused granted/refused refused    refused
expire        lost    granted         granted         granted         granted         granted    granted
to-ready      lost    granted         bug             bug             bug             refused    refused
to-unknown    lost    granted         granted         granted         granted         refused    refused
to-continue   lost    granted         granted         granted         granted         refused    refused
to-safe       lost    bug             granted         granted         granted         refused    refused
to-cancelling lost    granted         granted         granted         granted         granted    refused
to-cancelled  lost    bug             bug             bug             bug             granted    refused
"""


def cells() -> list[tuple[str, Phase | None, int | None, str]]:
    head, *lines = [line.split() for line in GRID.strip().splitlines()]
    found: list[tuple[str, Phase | None, int | None, str]] = []
    for name, *words in lines:
        for column, word in zip(head, words, strict=True):
            phase = None if column == "absent" else Phase(column)
            unasked, _, asked = word.partition("/")
            found.append((name, phase, None, unasked))
            found.append((name, phase, 3, asked or unasked))
    return found


@pytest.mark.parametrize(("name", "phase", "interrupt_seq", "expected"), cells())
def test_cell(name: str, phase: Phase | None, interrupt_seq: int | None, expected: str) -> None:
    """Each phase answers each command as the grid above says, before and after an interrupt was asked for."""
    row = None if phase is None else make_row(phase, interrupt_seq=interrupt_seq)
    if expected == "bug":
        with pytest.raises(AssertionError, match="no move from"):
            decide(row, FACTS, ASKS[name], NOW)
    else:
        assert answer(decide(row, FACTS, ASKS[name], NOW)) == expected


@pytest.mark.parametrize(("name", "phase", "interrupt_seq", "expected"), cells())
def test_free_row_is_taken_over_and_else_lost(
    name: str, phase: Phase | None, interrupt_seq: int | None, expected: str
) -> None:
    """In every phase an expired row can be taken over, can be asked, and is lost to its holder."""
    if phase is None:
        return
    row = make_row(phase, interrupt_seq=interrupt_seq, expires_at=NOW)
    wanted = {"acquire": "taken", "interrupt": "granted"}.get(name, "lost")
    assert answer(decide(row, FACTS, ASKS[name], NOW)) == wanted


def test_table_is_complete() -> None:
    """Every phase, and the absence of a row, has an entry for every command, and the grid names them all."""
    for phase in (None, *Phase):
        assert sorted(c.__name__ for c in TABLE[phase]) == sorted(c.__name__ for c in COMMANDS)
    assert tuple(MOVES) == tuple(Phase)
    asked = [type(command) for command in ASKS.values()]
    assert all(command in asked for command in COMMANDS)
    assert len(cells()) == 2 * 7 * len(ASKS)


def test_every_rule_is_used() -> None:
    """No rule is left in the enum that no cell of the table refers to."""
    used = [rule for row in TABLE.values() for rule in row.values()]
    assert all(rule in used for rule in Rule)


def test_missing_entry_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell without an entry raises instead of allowing or refusing by default."""
    monkeypatch.setattr(claims, "TABLE", {phase: {} for phase in (None, *Phase)})
    with pytest.raises(KeyError):
        decide(make_row(), FACTS, Renew(fence=MINE, lease_ms=LEASE), NOW)


# --- the fence ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [n for n, c in ASKS.items() if not isinstance(c, Acquire | RequestInterrupt)]
)
@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"execution_id": "exe_other", "generation": 5},
            "execution exe_other of owner own_mine holds it now, at generation 5 where this one had 4",
        ),
        ({"owner_id": "own_other"}, "it belongs to owner own_other, not to own_mine"),
        ({"expires_at": NOW}, "it expired at 10000 and it is 10000, 0 ms later"),
        ({"expires_at": NOW - 20}, "it expired at 9980 and it is 10000, 20 ms later"),
        (
            {"expires_at": HANDED_OVER},
            "it was freed by its holder (expires_at is 0, the clock reads 10000)",
        ),
        (
            {"expires_at": EXPIRED_AT_ONCE},
            "it was freed by its holder (expires_at is 1, the clock reads 10000)",
        ),
    ],
)
def test_fence(name: str, phase: Phase, change: dict[str, object], why: str) -> None:
    """Another execution, another owner or an expired lease loses every fenced command in every phase."""
    decision = decide(make_row(phase, **change), FACTS, ASKS[name], NOW)
    assert decision == Lost(reason=f"Execution exe_mine of session ses_1 lost its claim: {why}.")


def test_fence_of_another_generation_is_a_bug() -> None:
    """Execution ids are fresh each time, so one of them can't have two generations."""
    with pytest.raises(AssertionError, match="one generation"):
        decide(make_row(generation=5), FACTS, Renew(fence=MINE, lease_ms=LEASE), NOW)


def test_row_of_another_session_is_a_bug() -> None:
    """A row is only ever judged by commands for its own session."""
    with pytest.raises(AssertionError, match="another session"):
        decide(make_row(session_id="ses_2"), FACTS, Renew(fence=MINE, lease_ms=LEASE), NOW)


# --- what the caller sees ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "phase", "text"),
    [
        ("running", Phase.READY, "(phase ready, interrupt_seq 3, generation 4), so running work is refused."),
        ("settling", Phase.CANCELLED, "so settling work is refused."),
        ("clear", Phase.CANCELLING, "so clearing is refused."),
        ("hand-over", Phase.SAFE, "so a hand-over is refused."),
        ("to-safe", Phase.CANCELLING, "so the move to phase safe is refused."),
    ],
)
def test_refusals_say_what_stands_in_the_way(name: str, phase: Phase, text: str) -> None:
    """A refusal raises `ClaimCancelling` and names execution, session, phase and what was refused."""
    with pytest.raises(ClaimCancelling) as caught:
        granted(decide(make_row(phase, interrupt_seq=3), FACTS, ASKS[name], NOW))
    assert str(caught.value).startswith("Execution exe_mine of session ses_1 is being interrupted (phase ")
    assert str(caught.value).endswith(text)


def test_lost_without_a_row() -> None:
    """Without a row the loss names the generation up to which the session was claimed."""
    with pytest.raises(ClaimLost) as caught:
        granted(decide(None, FACTS, Renew(fence=MINE, lease_ms=LEASE), NOW))
    assert str(caught.value) == (
        "Execution exe_mine of session ses_1 lost its claim: the session has no claim any more;"
        " its latest generation is 4."
    )


def test_a_decision_changes_nothing() -> None:
    """The row handed in is left as it was, and the same question gets the same answer."""
    row = make_row()
    before = attrs.asdict(row)
    first = decide(row, FACTS, ASKS["to-unknown"], NOW)
    assert decide(row, FACTS, ASKS["to-unknown"], NOW) == first
    assert attrs.asdict(row) == before
