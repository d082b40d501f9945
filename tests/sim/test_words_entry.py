"""Trace entries read as lines, and no kind of entry is printed as an object."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from engine.claims import EXPIRED_AT_ONCE, HANDED_OVER
from engine.errors import ClaimLost
from engine.records import Claim, Phase
from sim.history import ClaimSeen
from sim.run import run_scenario
from sim.scenario import load_scenario
from sim.trace import Entry
from sim.words.entry import TEXT_MAX, line

ROOT = Path(__file__).parents[2]


def entry(kind: str, label: str, **fields: Any) -> Entry:
    return Entry(167, 40_350.0, kind, "a.1", "t", label, fields)


def claim(execution_id: str = "exe_a", **changes: Any) -> Claim:
    values: dict[str, Any] = {
        "session_id": "ses_s",
        "execution_id": execution_id,
        "owner_id": "own",
        "generation": 1,
        "phase": Phase.READY,
        "assistant_message_id": None,
        "assistant_seq": -1,
        "expires_at": 70_350,
        "created_at": 0,
        "version": 1,
        "interrupt_seq": None,
    }
    return Claim(**{**values, **changes})


def commit(before: Claim | None, after: Claim | None) -> str:
    seen = ClaimSeen(session_id="ses_s", before=before, after=after)
    return line(entry("commit", "renewal", events=(), claims=(seen,), error=None)).partition("a.1  ")[2]


def test_a_line_begins_with_number_time_and_node() -> None:
    """True time stands in seconds with all its milliseconds, in columns."""
    assert line(entry("node", "paused")) == "#167      40.350 s  a.1  node paused"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (None, claim(), "claimed for exe_a until 70.350 s"),
        (claim(expires_at=9), claim(), "the claim of exe_a renewed until 70.350 s"),
        (claim(), claim("exe_b"), "taken over from exe_a for exe_b until 70.350 s"),
        (claim(), claim(phase=Phase.UNKNOWN), "the claim of exe_a in phase unknown"),
        (claim(), claim(interrupt_seq=3), "an interrupt asked of exe_a"),
        (claim(), claim(expires_at=EXPIRED_AT_ONCE), "the claim of exe_a freed at once"),
        (claim(), claim(expires_at=HANDED_OVER), "the claim of exe_a handed over"),
        (claim(), None, "the claim of exe_a removed"),
        (claim(), claim(), ""),
    ],
)
def test_a_commit_says_what_became_of_the_claim(before: Claim | None, after: Claim | None, said: str) -> None:
    """The one change that tells most; none if there was none."""
    assert commit(before, after) == f"committed renewal: {said}".rstrip(": ")


def test_other_entries() -> None:
    """Refusals name their error, requests their step, tools their call."""
    refused = line(entry("refused", "tool.called", events=(), claims=(), error=ClaimLost("it is gone")))
    assert refused.endswith("was refused tool.called: ClaimLost: it is gone")
    assert line(entry("tool", "slow", call="c1")).endswith("started tool slow for call c1")
    assert line(entry("fault", "stall", name="frozen")).endswith("fault stall (frozen)")
    assert line(entry("listener", "text.ended", seq=3)).endswith("told a listener of text.ended (seq 3)")
    assert line(entry("gate", "commit")).endswith("gate commit (t)")


def test_a_long_line_is_cut() -> None:
    """What is said has a bound, and stays on one line."""
    long = line(entry("refused", "x", events=(), claims=(), error=ClaimLost("a b\n" * 200)))
    assert len(long) <= TEXT_MAX + 40
    assert long.endswith("…")
    assert "\n" not in long


@pytest.mark.parametrize("name", ["interrupted_step_started", "take_over_tool_called"])
def test_every_entry_of_a_run_reads(name: str) -> None:
    """No entry of a whole run shows how Python prints an object."""
    result = run_scenario(load_scenario(ROOT / "scenarios" / f"{name}.toml"))
    lines = [line(one) for one in result.entries]
    assert [one for one in lines if re.search(r"\w\(\w+=|<\w+ |\\n|\n", one)] == []


def test_what_the_disk_did_is_a_line() -> None:
    """What it did to an operation, or what a loss of power left, and by which fault."""
    assert line(entry("disk", "a sync failed", name="worn")).endswith("disk: a sync failed (worn)")
    assert line(entry("disk", "power is back", name="dark")).endswith("disk: power is back (dark)")
