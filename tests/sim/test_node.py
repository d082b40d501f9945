"""A node's incarnations: under whose owner id they run, and with which clocks they boot."""

from __future__ import annotations

from sim.record import Record
from sim.scenario import parse_scenario
from sim.tape import Tape
from sim.world import World
from tests.sim.test_faults import BASE

SLOTS = BASE.replace('name = "a"\n', 'name = "a"\nowner = "slot-a"\n', 1)


def record_of(text: str) -> Record:
    scenario, problems = parse_scenario(text, "node.toml")
    assert scenario is not None, problems
    run = World(scenario, Tape.fifo()).run()
    record = Record(run)
    run.close()
    return record


def owners(record: Record) -> list[str]:
    """The owner ids that claims were written with, each as often as it followed another one."""
    found: list[str] = []
    for commit in record.commits:
        for seen in commit.claims:
            if seen.after is not None and found[-1:] != [seen.after.owner_id]:
                found.append(seen.after.owner_id)
    return found


def test_a_restart_under_another_owner_id_is_for_that_life_only() -> None:
    """The next incarnation claims under the owner id that the fault names, the one after under its own."""
    text = SLOTS.replace("chunks = 10", "chunks = 20") + (
        '\n[[faults]]\nkind = "power_cut"\nnode = "b"\nat_s = 0.3\n'
        '[[faults]]\nkind = "cancel"\nnode = "a"\nat_s = 1.0\nfor_s = 1.0\nowner = "slot-x"\n'
        '[[faults]]\nas = "out"\nkind = "cancel"\nnode = "a"\nat_s = 50.0\n'
        '[[actions]]\ndo = "start"\nnode = "a"\nwhen = { after = "out", delay_s = 10.0 }\n'
    )
    assert owners(record_of(text)) == ["slot-a", "slot-x", "slot-a"]


def test_a_client_may_start_a_node_under_another_owner_id() -> None:
    """`start` with an owner does what a restart by a fault does."""
    text = SLOTS + (
        '\n[[faults]]\nkind = "power_cut"\nnode = "b"\nat_s = 0.3\n'
        '[[faults]]\nkind = "cancel"\nnode = "a"\nat_s = 1.0\n'
        '[[actions]]\ndo = "start"\nnode = "a"\nowner = "slot-y"\nat_s = 5.0\n'
    )
    assert owners(record_of(text)) == ["slot-a", "slot-y"]


def test_a_clock_is_wrong_after_each_boot() -> None:
    """It is off from the first start on and again from the restart on, each time until it is corrected."""
    text = BASE.replace("starts_at_s = 0.2", "starts_at_s = 1.0").replace(
        "\n[[sessions]]", "\n[nodes.clock]\nboot_offset_ms = 60000\nboot_for_s = 4.0\n\n[[sessions]]", 1
    )
    record = record_of(text + '\n[[faults]]\nkind = "power_cut"\nnode = "b"\nat_s = 10.0\nfor_s = 5.0\n')
    wrong = [at_s for at_s in range(25) if record.clocks_at(at_s * 1000)["b"] != at_s * 1000]
    assert wrong == [1, 2, 3, 4, 15, 16, 17, 18]
    assert record.clocks_at(16_000) == {"a": 16_000, "b": 76_000}
