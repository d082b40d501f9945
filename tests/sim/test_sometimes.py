"""The marks of rare states: each names what a run really reached, here those of the machine and its disk."""

from __future__ import annotations

import pytest

from sim.record import Record
from sim.sometimes import marks
from tests.sim.test_machine import AT_SYNC, run_with

LOST = "a commit was lost with the power"
SURVIVED = "an unacknowledged commit survived the loss of power"
IN_COMMIT = "the machine lost its power in a COMMIT"
UNTOLD = "a COMMIT failed on the disk, and its outcome couldn't be told"
OF_THE_MACHINE = {
    *(
        "the machine lost its power",
        IN_COMMIT,
        LOST,
        SURVIVED,
        UNTOLD,
        "the disk was full",
        "the disk was slow",
    ),
    *("a read of the disk failed", "a write of the disk failed", "a sync of the disk failed"),
    *("a sync of the disk lied", "a transaction couldn't begin"),
    "a statement failed in the middle of a work",
}
REFUSED = (
    'kind = "store_error"; node = "a"; error = "StoreFull"; when = { event = "text.started" }; inside = '
)


@pytest.mark.parametrize(
    ("fault", "reached"),
    [
        ('kind = "clock_step"; node = "a"; by_ms = 10; at_s = 0.1', []),
        ('kind = "power_loss"; at_s = 0.15; for_s = 1.0', ["the machine lost its power"]),
        (
            f'kind = "power_loss"; unsynced = "lost"; when = {AT_SYNC}; for_s = 1.0',
            ["the machine lost its power", IN_COMMIT, LOST],
        ),
        (
            f'kind = "power_loss"; unsynced = "kept"; when = {AT_SYNC}; for_s = 1.0',
            ["the machine lost its power", IN_COMMIT, SURVIVED],
        ),
        ('kind = "disk_error"; operation = "read"; at_s = 0.1', ["a read of the disk failed"]),
        ('kind = "disk_error"; operation = "write"; at_s = 0.1', ["a write of the disk failed"]),
        ('kind = "disk_error"; operation = "sync"; at_s = 0.1', ["a sync of the disk failed"]),
        (
            'kind = "disk_error"; operation = "sync"; operations = 5; at_s = 0.1',
            ["a sync of the disk failed", UNTOLD],
        ),
        ('kind = "disk_full"; at_s = 0.38; for_s = 0.05', ["the disk was full"]),
        ('kind = "sync_lies"; at_s = 0.38; for_s = 0.05', ["a sync of the disk lied"]),
        ('kind = "slow_disk"; commit_ms = 5; at_s = 0.1; for_s = 0.4', ["the disk was slow"]),
        (f'{REFUSED}"begin"', ["a transaction couldn't begin"]),
        (f'{REFUSED}"work"', ["a statement failed in the middle of a work"]),
    ],
)
def test_marks_of_the_machine(fault: str, reached: list[str]) -> None:
    """A run reaches those of what befell it, and no others of the machine."""
    found = marks(Record(run_with(fault)))
    assert sorted(set(found) & OF_THE_MACHINE) == sorted(reached)
    assert "all nodes were struck at one moment" not in found
