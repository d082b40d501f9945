"""Scenario files with a disk: what goes together, and what is told where it doesn't."""

from __future__ import annotations

import pytest

from sim.saved import dump
from sim.scenario import Disk, OnDisk, parse_scenario

NODES = """
proves = "Something."

[[nodes]]
name = "a"
"""


def flaws(text: str) -> list[str]:
    """`key: message` of each problem."""
    return [f"{one.key}: {one.message}" for one in parse_scenario(NODES + text, "disk.toml")[1]]


def fault(keys: str, disk: str = "[disk]") -> str:
    """A file's fault."""
    return f"{disk}\n[[faults]]\n" + keys.replace("; ", "\n")


def test_a_file_with_a_disk_reads_as_it_was_saved() -> None:
    """The empty table, the trigger and the kinds outlive a round."""
    text = fault(
        'kind = "power_loss"; when = { disk = "sync", nth = 2, side = "after", event = "step.ended" }'
    )
    scenario, problems = parse_scenario(NODES + text, "disk.toml")
    assert scenario is not None, problems
    assert scenario.disk == Disk()
    assert scenario.faults[0].when == OnDisk(disk="sync", nth=2, side="after", event="step.ended")
    again, problems = parse_scenario(dump(scenario), "disk.toml")
    assert problems == []
    assert again is not None
    assert (again.disk, again.faults[0].when) == (scenario.disk, scenario.faults[0].when)


@pytest.mark.parametrize(
    "keys",
    [
        'kind = "power_loss"; at_s = 1.0',
        'kind = "power_loss"; at_s = 1.0; for_s = 3.0; unsynced = "torn"',
        'kind = "disk_error"; operation = "read"; operations = 3; when = { gate = 3 }',
        'kind = "disk_full"; for_s = 3.0; when = { disk = "write", session = "s" }\n[[sessions]]\nname = "s"',
        'kind = "sync_lies"; when = { disk = "sync", node = "a" }',
        'kind = "slow_disk"; commit_ms = 100; at_s = 0.0',
        'kind = "store_error"; node = "a"; error = "StoreBusy"; inside = "begin"; at_s = 0.0',
        'kind = "store_error"; node = "a"; error = "StoreFull"; inside = "work"; statement = 2; at_s = 0.0',
    ],
)
def test_faults_of_the_disk_have_keys_of_their_own(keys: str) -> None:
    """Each kind with what it takes."""
    assert flaws(fault(keys)) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            fault('kind = "power_loss"; at_s = 1.0', ""),
            "faults[0].kind: there is no disk: the database is in memory",
        ),
        (
            fault('kind = "power_cut"; node = "a"; when = { disk = "sync" }'),
            'faults[0].when: kind = "power_cut" can\'t happen in the middle of an operation',
        ),
        (
            fault('kind = "disk_full"; node = "a"; at_s = 1.0'),
            'faults[0].node: kind = "disk_full" befalls the machine, and so all nodes',
        ),
        (fault('kind = "power_cut"; at_s = 1.0'), 'faults[0]: kind = "power_cut" needs node'),
        (fault('kind = "disk_error"; at_s = 1.0'), 'faults[0]: kind = "disk_error" needs operation'),
        (fault('kind = "slow_disk"; at_s = 1.0'), 'faults[0]: kind = "slow_disk" needs commit_ms'),
        (
            fault('kind = "disk_full"; at_s = 1.0; operation = "read"'),
            'faults[0].operation: kind = "disk_full" has no operation',
        ),
        (
            fault('kind = "store_error"; node = "a"; at_s = 1.0; inside = "work"; applied = true'),
            "faults[0].applied: inside and applied don't go together",
        ),
        (
            fault('kind = "store_error"; node = "a"; at_s = 1.0; inside = "begin"; statement = 2'),
            'faults[0].statement: statement needs inside = "work"',
        ),
        (
            fault('kind = "power_loss"; when = { disk = "sync", node = "z" }'),
            'faults[0].when.node: unknown node "z"',
        ),
        (
            '[disk]\n[[actions]]\ndo = "start"\nnode = "a"\nwhen = { disk = "sync" }\n',
            "actions[0].when: an action can't happen in the middle of an operation",
        ),
        ("[disk]\ncheckpoint_pages = 0\n", "disk.checkpoint_pages: must be at least 1, not 0"),
    ],
)
def test_what_doesnt_go_together_is_told(text: str, told: str) -> None:
    """Each mistake by itself, at its key."""
    assert flaws(text) == [told]
