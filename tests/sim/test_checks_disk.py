"""I15: what was acknowledged survives a power loss, what survives is a beginning, and nothing is damaged."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from sim.checks import check_invariants
from sim.checks.database import database_checks
from sim.record import Record
from sim.run import judge
from sim.scenario import Disk, Scenario, load_scenario
from sim.scenario.read import parse_scenario
from sim.tape import Tape
from sim.world import World
from tests.sim.test_machine import AT_SYNC, BASE, scenario_of

OLD_PAGES = """
proves = "A lying sync that lets old pages come back beside new ones is nobody's breach."
name = "old_pages"
nodes = [{ name = "a" }]
actions = [
    { do = "send", node = "a", session = "s", text = "Good morning", at_s = 0.0 },
    { do = "interrupt", node = "a", session = "s", when = { event = "step.started", nth = 2 } },
]
faults = [
    { kind = "disk_full", for_s = 8.0, when = { disk = "write", nth = 4, event = "text.ended" } },
    { kind = "power_loss", for_s = 45.0, at_s = 25.0 },
    { kind = "sync_lies", for_s = 5.0, when = { disk = "write", nth = 3, event = "step.started" } },
]

[disk]
checkpoint_pages = 20

[[sessions]]
name = "s"
replies = [[
    { call = "c2", tool = "web_search", input = {}, hosted = true },
    { text = "%s", chunks = 2, every_ms = 4000 },
    { close_ms = 3000 },
]]
""" % ("0123456789" * 300)

AFTER = 'as = "dark"; kind = "power_loss"; unsynced = "lost"; for_s = 1.0; at_s = 0.45'


def rules(scenario: Scenario) -> list[str]:
    """What a run is found guilty of."""
    return [violation.rule for violation in judge(scenario, Tape.fifo()).violations]


def test_it_holds_with_the_engines_pragmas() -> None:
    """The same world as below, but synced."""
    assert rules(scenario_of(AFTER)) == []


def test_it_finds_that_commits_were_acknowledged_and_never_synced() -> None:
    """With `synchronous = off` each commit that is gone is told in a sentence, and nothing else is."""
    scenario = attrs.evolve(scenario_of(AFTER), disk=Disk(synchronous="off"))
    violations = judge(scenario, Tape.fifo()).violations
    assert {violation.rule for violation in violations} == {"I15"}
    (told,) = [one for one in violations if "commit of text.ended" in one.sentence]
    assert told.sentence.endswith(
        "a.1's commit of text.ended at 0.4 s was acknowledged, and was gone after power was lost at 0.5 s"
    )
    assert (told.session, told.node, told.true_ms) == ("ses_s", "a.1", 450.0)


def test_it_finds_what_normal_would_lose() -> None:
    """`synchronous = normal` syncs at checkpoints only: commits between them are lost."""
    scenario = attrs.evolve(scenario_of(AFTER), disk=Disk(synchronous="normal"))
    assert set(rules(scenario)) == {"I15"}


def test_a_commit_that_nobody_was_told_of_may_be_lost() -> None:
    """Power that goes in the middle of a COMMIT takes what wasn't acknowledged."""
    assert rules(scenario_of(f'kind = "power_loss"; unsynced = "lost"; for_s = 1.0; when = {AT_SYNC}')) == []


@pytest.mark.parametrize("unsynced", ["lost", "some", "torn"])
def test_a_lying_disk_is_exempt_and_never_crashes_the_simulator(unsynced: str) -> None:
    """Whatever it loses, and if the database is gone: no invariant is broken by what nobody could prevent."""
    for checkpoint in (5, 1000):
        for seed in range(4):
            scenario = scenario_of(
                'kind = "sync_lies"; at_s = 0.0', AFTER.replace('"lost"; for', f'"{unsynced}"; for')
            )
            scenario = attrs.evolve(scenario, disk=Disk(checkpoint_pages=checkpoint))
            assert judge(scenario, Tape.seeded(seed)).violations == []


def test_a_file_that_expects_something_of_a_lost_database_is_told_why() -> None:
    """The run ended early: the explanation stands beside what couldn't be met."""
    text = (
        BASE.replace("[disk]", "[disk]\ncheckpoint_pages = 5") + '\n[[expect]]\nstatus = "s"\nis = "idle"\n'
    )
    scenario = scenario_of(
        'kind = "sync_lies"; at_s = 0.0', AFTER.replace('"lost"; for', '"torn"; for'), base=text
    )
    sentences = [violation.sentence for violation in judge(scenario, Tape.fifo()).violations]
    assert "the run ended early: after the power loss dark the database couldn't be used" in sentences[-1]


def test_damage_on_an_honest_disk_is_a_breach() -> None:
    """If SQLite can't be relied upon, the sentence says what it found."""
    scenario = attrs.evolve(
        scenario_of(AFTER.replace('"lost"; for', '"torn"; for')),
        disk=Disk(synchronous="off", checkpoint_pages=5),
    )
    (violation,) = judge(scenario, Tape.fifo()).violations
    assert violation.rule == "I15"
    assert "after power was lost at 0.5 s, the database couldn't be used any more" in violation.sentence


def test_what_is_wrong_with_the_rest_is_told() -> None:
    """Gaps and leftovers that the database found are breaches, unless the disk had lied."""
    run = World(scenario_of(AFTER), Tape.fifo()).run()
    (loss,) = run.database.history.losses
    loss.wrong.append("x was gone, and y, which came later, was there")
    for honest, found in ((True, ["I15"]), (False, [])):
        loss.honest = honest
        violations = check_invariants(Record(run))
        assert [violation.rule for violation in violations] == found
    run.close()


def test_old_pages_beside_new_ones_accuse_nobody() -> None:
    """A database of which a lying sync let old pages come back contradicts itself: no rule is asked of it."""
    scenario, problems = parse_scenario(OLD_PAGES, "old_pages.toml")
    assert (problems, scenario is None) == ([], False)
    assert scenario is not None
    run = World(scenario, Tape.fifo()).run()
    try:
        record = Record(run)
        assert [violation.rule for violation in database_checks(record)] != [], "the damage is there"
        assert check_invariants(record) == []
    finally:
        run.close()


@pytest.mark.parametrize("fault", [AFTER, 'kind = "sync_lies"; at_s = 0.0; for_s = 0.5'])
def test_nobody_removes_anothers_claim_whatever_the_machine_does(fault: str) -> None:
    """A machine that fails may cost an owner its claim, but the next one writes its own: I2 looks at that."""
    run = World(scenario_of(fault), Tape.fifo()).run()
    history = run.database.history
    claimed = next(one for one in history.commits if any(seen.after is not None for seen in one.claims))
    (seen,) = claimed.claims
    removed = attrs.evolve(seen, before=seen.after, after=None)
    history.commits.append(attrs.evolve(claimed, node="b.1", events=(), claims=(removed,)))
    violations = [one for one in check_invariants(Record(run)) if one.rule == "I2"]
    run.close()
    assert len(violations) == 1
    assert "removed the claim of" in violations[0].detail


def test_memories_of_a_log_that_is_gone_prove_nothing() -> None:
    """Requests, tools, listeners and followers saw commits that a lying disk lost: nobody is accused."""
    text = (
        BASE.replace(
            "replies = [",
            'replies = [\n  [{ call = "c", tool = "t", input = {} }, { finish = "tool_calls" }],',
        )
        + '\n[[tools]]\nname = "t"\noutput = 1\n\n[[followers]]\nnode = "b"\nsession = "s"\n'
    )
    for seed in range(6):
        scenario = scenario_of(
            'kind = "sync_lies"; at_s = 0.0',
            'kind = "power_loss"; unsynced = "lost"; for_s = 1.0; when = { event = "tool.succeeded" }',
            base=text,
        )
        assert judge(scenario, Tape.seeded(seed)).violations == []


def test_the_scenario_of_the_lying_disk_really_loses_something() -> None:
    """The file would prove nothing if every commit were still there."""
    scenario = load_scenario(Path(__file__).parents[2] / "scenarios" / "disk_sync_lies.toml")
    run = World(scenario, Tape.fifo()).run()
    assert run.database.history.losses[0].lost
    run.close()
