"""What befalls the machine that all nodes run on: its power and its disk."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest

from sim.machine import DatabaseLost
from sim.run import run_scenario
from sim.scenario import Scenario, parse_scenario
from sim.tape import Tape
from sim.trace import Entry
from sim.world import Run, World

BASE = """
proves = "Something."

[disk]

[[nodes]]
name = "a"

[[nodes]]
name = "b"

[[sessions]]
name = "s"
replies = [
  [{ text = ["Well,", " let", " me", " see"], every_ms = 100 }, { finish = "stop" }],
  [{ text = "Where was I?" }, { finish = "stop" }],
]

[[actions]]
do = "send"
node = "a"
session = "s"
text = "Go"
at_s = 0.0
"""
AT_SYNC = '{ disk = "sync", event = "text.ended" }'


def scenario_of(*faults: str, base: str = BASE) -> Scenario:
    """The base with faults, each a line of keys."""
    text = base + "".join("\n[[faults]]\n" + fault.replace("; ", "\n") for fault in faults)
    scenario, problems = parse_scenario(text, "machine.toml")
    assert scenario is not None, problems
    return scenario


def run_with(*faults: str, tape: Tape | None = None) -> Run:
    """The base with faults, run and closed: its trace, history and ledger stay."""
    run = World(scenario_of(*faults), tape or Tape.fifo()).run()
    run.close()
    assert (run.ended, run.unrest, run.ledger.crashes) == (None, None, [])
    return run


def entries(run: Run, *kinds: str) -> list[Entry]:
    return [entry for entry in run.trace.entries if entry.kind in kinds]


def written(run: Run) -> list[str]:
    """The types of the events that are in the history."""
    return [row.type for commit in run.database.history.commits for row in commit.events]


# --- power -------------------------------------------------------------------------------------------


def test_all_nodes_lose_their_power_at_once_and_come_back() -> None:
    """None of their code runs between the moment and the restart, which is a new incarnation of each."""
    run = run_with('kind = "power_loss"; at_s = 0.15; for_s = 4.0')
    dead = [(entry.node, entry.true_ms) for entry in entries(run, "node") if entry.label == "dead"]
    assert dead == [("a.1", 150.0), ("b.1", 150.0)]
    after = [entry for entry in run.trace.entries if entry.true_ms > 150 and entry.node in ("a.1", "b.1")]
    assert after == []
    first = {
        entry.node: entry.true_ms for entry in reversed(run.trace.entries) if entry.node in ("a.2", "b.2")
    }
    assert first == {"a.2": 4150.0, "b.2": 4150.0}
    assert [(one.kind, one.node, one.until_ms) for one in run.ledger.faults] == [
        ("power_loss", "a", 150.0),
        ("power_loss", "b", 150.0),
    ]


def test_without_for_s_nobody_comes_back() -> None:
    """The run ends there, with what the disk kept."""
    run = run_with('kind = "power_loss"; at_s = 0.15')
    assert written(run)[-1] == "text.started"
    assert run.virtual_ms < 5_000


def test_power_goes_in_the_middle_of_a_commit() -> None:
    """The caller never learns of it, nobody's code runs on, and the trace says what was lost."""
    run = run_with(f'as = "dark"; kind = "power_loss"; unsynced = "lost"; when = {AT_SYNC}; for_s = 1.0')
    (told,) = entries(run, "disk")
    (refused,) = [entry for entry in entries(run, "refused") if entry.node == "a.1"]
    assert told.label == f"power is back; lost #{refused.index} text.ended"
    assert told.fields["lost"] == (refused.index,)
    later = [one for one in run.trace.entries if one.node in ("a.1", "b.1") and one.index > refused.index]
    assert [(one.kind, one.node) for one in later[:2]] == [("node", "a.1"), ("node", "b.1")]
    assert all(one.kind != "gate" and one.true_ms <= 400 for one in later), "notes of before, at most"


def test_a_commit_that_survived_unknown_is_named() -> None:
    """It is part of the history, at the entry of the write that was refused."""
    run = run_with(f'kind = "power_loss"; unsynced = "kept"; when = {AT_SYNC}; for_s = 1.0')
    (told,) = entries(run, "disk")
    (entry,) = told.fields["survived"]
    assert told.label == f"power is back; kept #{entry} text.ended, which nobody was told of"
    assert entry in [commit.entry for commit in run.database.history.commits]


def test_what_was_lost_is_gone_from_the_history_and_kept_in_the_trace() -> None:
    """Where syncs lie, acknowledged commits leave the history with the power."""
    run = run_with(
        'kind = "sync_lies"; when = { event = "step.started" }',
        'as = "dark"; kind = "power_loss"; unsynced = "lost"; for_s = 1.0; '
        'when = { event = "text.ended", window = "after_notify" }',
    )
    (loss,) = run.database.history.losses
    assert not loss.honest
    lost = [row.type for commit in loss.lost for row in commit.events]
    assert lost[:1] == ["text.started"]
    assert "text.ended" in lost
    kept = [one.entry for one in run.database.history.commits if one.entry < loss.moment.entry]
    assert all(commit.entry > max(kept) for commit in loss.lost)
    traced = {entry.index for entry in entries(run, "commit")}
    assert {commit.entry for commit in loss.lost} <= traced


@pytest.mark.parametrize("unsynced", ["lost", "kept", "some", "torn"])
def test_a_loss_is_the_same_in_each_run_of_a_tape(unsynced: str) -> None:
    """What survives is a draw like any other."""
    scenario = scenario_of(f'kind = "power_loss"; unsynced = "{unsynced}"; when = {AT_SYNC}; for_s = 1.0')
    for seed in range(3):
        result = run_scenario(scenario, partial(Tape.seeded, seed), check_determinism=True)
        assert [str(one) for one in result.violations] == []


def test_a_database_that_is_lost_ends_the_run() -> None:
    """It says of which loss, and why."""
    base = BASE.replace("[disk]", "[disk]\ncheckpoint_pages = 5")
    scenario = scenario_of(
        'kind = "sync_lies"; at_s = 0.0',
        'as = "dark"; kind = "power_loss"; unsynced = "torn"; when = { event = "text.ended" }',
        base=base,
    )
    run = World(scenario, Tape.fifo()).run()
    run.close()
    assert isinstance(run.ended, DatabaseLost)
    assert str(run.ended).startswith("after the power loss dark the database couldn't be used any more: ")


# --- the disk ----------------------------------------------------------------------------------------


def test_a_fault_that_nothing_meets_wasnt_applied() -> None:
    """Errors, fullness and lies lie in wait, and count from the operation that meets them on."""
    waiting = ('kind = "disk_full"; at_s = {0}; for_s = 0.05', 'kind = "sync_lies"; at_s = {0}; for_s = 0.05')
    error = 'kind = "disk_error"; operation = "sync"; at_s = {0}'
    for fault in (*waiting, error):
        missed = run_with(fault.format(60.0))
        assert [one.kind for one in missed.ledger.faults] == []
        met = run_with(fault.format(0.38 if fault is not error else 0.1))
        kind = fault.split('"')[1]
        assert [(one.kind, one.node) for one in met.ledger.faults] == [(kind, "a"), (kind, "b")]


def test_an_error_strikes_by_the_fault_that_waits_for_its_operation() -> None:
    """Each operation that fails is in the trace under one fault's name; what met none wasn't applied."""
    run = run_with(
        'as = "unmet"; kind = "disk_error"; operation = "write"; at_s = 90.0',
        'as = "first"; kind = "disk_error"; operation = "sync"; operations = 2; at_s = 0.1',
        'as = "second"; kind = "disk_error"; operation = "sync"; at_s = 0.1',
    )
    met = [(one.label, one.fields["name"]) for one in entries(run, "disk")]
    assert met == [("a sync failed", "first"), ("a sync failed", "first"), ("a sync failed", "second")]
    assert {one.name for one in run.ledger.faults} == {"first", "second"}
    began = {one.name: one.moment.true_ms for one in run.ledger.faults}
    assert min(began.values()) > 100, "it counts from what it met on, not from when it lay in wait"
    assert began["first"] == entries(run, "disk")[0].true_ms


def test_what_was_over_before_anything_met_it_isnt_applied() -> None:
    """A disk that was full while nobody wrote isn't blamed for one that is full later."""
    run = run_with(
        'as = "early"; kind = "disk_full"; at_s = 0.05; for_s = 0.01',
        'as = "late"; kind = "disk_full"; at_s = 0.38; for_s = 0.05',
    )
    assert {one.name for one in run.ledger.faults} == {"late"}
    assert entries(run, "disk")[0].label == "a write refused, as the disk was full"


def test_a_slow_disk_makes_commits_wait_for_each_other() -> None:
    """Each takes its time after the one before, and its works read the clock when they got the lock."""
    more = '\n[[sessions]]\nname = "t"\n'
    more += '\n[[actions]]\ndo = "send"\nnode = "b"\nsession = "t"\ntext = "Go"\nat_s = 0.0\n'
    scenario = scenario_of('kind = "slow_disk"; commit_ms = 1000; at_s = 0.0', base=BASE + more)
    run = World(scenario, Tape.fifo()).run()
    run.close()
    commits = [commit for commit in run.database.history.commits if commit.true_ms > 0]
    moments = list(dict.fromkeys(commit.true_ms for commit in commits))
    assert all(later - earlier >= 1000 for earlier, later in pairwise(moments))
    assert {commit.node for commit in commits} == {"a.1", "b.1"}
    assert all(commit.now_ms == commit.true_ms - 1000 for commit in commits)


def test_a_slow_disk_is_fast_again() -> None:
    """After `for_s`, commits take no time."""
    run = run_with('kind = "slow_disk"; commit_ms = 500; at_s = 0.0; for_s = 0.3')
    late = [commit for commit in run.database.history.commits if commit.true_ms > 800]
    assert late
    assert all(commit.now_ms == commit.true_ms for commit in late)


@pytest.mark.parametrize(
    ("when", "hits"),
    [
        ('{ disk = "sync", event = "text.ended" }', True),
        ('{ disk = "sync", event = "text.ended", session = "s", node = "a" }', True),
        ('{ disk = "write", nth = 3, session = "s" }', True),
        ('{ disk = "sync", event = "text.ended", node = "b" }', False),
        ('{ disk = "sync", event = "tool.called" }', False),
        ('{ disk = "sync", nth = 900 }', False),
    ],
)
def test_a_trigger_of_the_disk_counts_what_fits(when: str, hits: bool) -> None:
    """Only operations of its kind, of a commit with that event, session and node; else it never fires."""
    run = run_with(f'as = "dark"; kind = "power_loss"; when = {when}; for_s = 1.0')
    assert ("dark" in run.ledger.fired) is hits
    assert len(run.database.history.losses) == hits
