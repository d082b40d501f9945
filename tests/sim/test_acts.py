"""Actions and faults: what waits for something that never comes doesn't keep a world going."""

from __future__ import annotations

from sim.checks import check_invariants
from sim.record import Record
from sim.run import judge
from sim.scenario import parse_scenario
from sim.tape import Tape
from sim.world import World

CHAINED = """
proves = "Nothing."

[[nodes]]
name = "a"

[[sessions]]
name = "s"

[[actions]]
do = "send"
node = "a"
session = "s"
text = "Go"
at_s = 0.0

[[actions]]
as = "stop"
do = "interrupt"
node = "a"
session = "s"
when = { event = "tool.called" }

[[actions]]
as = "again"
do = "resume"
node = "a"
session = "s"
when = { after = "stop", delay_s = 5.0 }

[[expect]]
status = "s"
is = "idle"
"""


def test_an_act_behind_one_that_never_comes_never_comes_either() -> None:
    """The world comes to rest, and both are named as what never happened."""
    scenario, problems = parse_scenario(CHAINED, "chained.toml")
    assert scenario is not None
    assert problems == []
    result = judge(scenario, Tape.fifo())
    assert [violation.sentence.partition(":")[0] for violation in result.violations] == [
        "stop never happened",
        "again never happened",
    ]
    assert result.virtual_s < 10


TWO_RESTARTS = """
proves = "A node that two faults start again at one moment is started once."

[[nodes]]
name = "a"

[[sessions]]
name = "s"

[[actions]]
do = "send"
node = "a"
session = "s"
text = "Go"
at_s = 0.0

[[faults]]
kind = "cancel"
node = "a"
at_s = 1.0
for_s = 2.0

[[faults]]
kind = "power_cut"
node = "a"
at_s = 1.0
for_s = 2.0

[[expect]]
status = "s"
is = "idle"
"""


def test_two_restarts_at_once_are_one() -> None:
    """Under whatever order of the two, no incarnation is started beside another."""
    scenario, _ = parse_scenario(TWO_RESTARTS, "restarts.toml")
    assert scenario is not None
    for seed in range(20):
        assert judge(scenario, Tape.seeded(seed)).violations == []


DELETED = """
proves = "A session that is deleted has no log to damage."

[[nodes]]
name = "a"

[[sessions]]
name = "s"

[[actions]]
as = "gone"
do = "delete"
node = "a"
session = "s"
at_s = 0.0

[[actions]]
as = "damage"
do = "poison"
node = "a"
session = "s"
when = { after = "gone" }

[[expect]]
answer = "damage"
is = "done"
"""


def test_a_deleted_session_cant_be_poisoned() -> None:
    """Its log stays what it was, and no rule breaks; one that is there is damaged."""
    for source, types in (
        (DELETED, ["session.created", "session.deleted"]),
        (DELETED.replace('"delete"', '"resume"'), ["session.created", "poison"]),
    ):
        scenario, problems = parse_scenario(source, "deleted.toml")
        assert scenario is not None, problems
        run = World(scenario, Tape.fifo()).run()
        try:
            record = Record(run)
            assert [row.type for row in record.events(record.sessions()[0])] == types
            assert check_invariants(record) == []
        finally:
            run.close()
