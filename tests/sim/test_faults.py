"""What each kind of fault does to the nodes that it strikes."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.scenario import Scenario, parse_scenario
from sim.tape import Tape
from sim.trace import Entry
from sim.world import Run, World

BASE = """
proves = "Something."

[[nodes]]
name = "a"

[[nodes]]
name = "b"
starts_at_s = 0.2

[[sessions]]
name = "s"
replies = [[{ text = "A long answer", chunks = 10, every_ms = 9000 }, { finish = "stop" }]]

[[actions]]
do = "send"
node = "a"
session = "s"
text = "Go"
at_s = 0.0
"""


def scenario_of(*faults: str) -> Scenario:
    """The base with faults, each a line of keys."""
    text = BASE + "".join("\n[[faults]]\n" + fault.replace("; ", "\n") for fault in faults)
    scenario, problems = parse_scenario(text, "faults.toml")
    assert scenario is not None, problems
    return scenario


def run_with(*faults: str, tape: Tape | None = None) -> Run:
    """The base with faults, run and closed: its trace and ledger stay."""
    run = World(scenario_of(*faults), tape or Tape.fifo()).run()
    run.close()
    assert (run.ended, run.unrest, run.ledger.crashes) == (None, None, [])
    return run


def applied(run: Run) -> list[tuple[str, str, float]]:
    """(kind, node, when in seconds) of each fault that was applied."""
    return [(one.kind, one.node, one.moment.true_ms / 1000) for one in run.ledger.faults]


def states(run: Run, node: str) -> list[tuple[float, str]]:
    """When an incarnation stood still, went on, or died: (seconds, state)."""
    return [(one.true_ms / 1000, one.label) for one in run.trace.entries if is_of(node)(one)]


def is_of(node: str) -> Callable[[Entry], bool]:
    return lambda entry: entry.kind == "node" and entry.node == node


# --- all nodes at one moment -------------------------------------------------------------------------


def test_all_nodes_are_struck_at_one_moment() -> None:
    """Every node that is up stands still from the same trace entry on, and each is written down."""
    run = run_with('kind = "stall"; node = "*"; at_s = 5.0; for_s = 7.0')
    assert applied(run) == [("stall", "a", 5.0), ("stall", "b", 5.0)]
    assert len({one.moment.entry for one in run.ledger.faults}) == 1
    assert states(run, "a.1") == states(run, "b.1") == [(5.0, "paused"), (12.0, "running")]


def test_who_is_down_is_spared_but_for_its_clock() -> None:
    """A power cut of all strikes the one that is up; a step of all clocks moves those of the dead, too."""
    run = run_with(
        'kind = "power_cut"; node = "b"; at_s = 3.0',
        'kind = "power_cut"; node = "*"; at_s = 5.0; for_s = 1.0',
        'kind = "clock_step"; node = "*"; at_s = 5.5; by_ms = -1000',
    )
    assert applied(run) == [
        ("power_cut", "b", 3.0),
        ("power_cut", "a", 5.0),
        ("clock_step", "a", 5.5),
        ("clock_step", "b", 5.5),
    ]
    assert [node.wall.read_ms(10_000_000_000) for node in run.nodes.values()] == [9_000, 9_000]


def test_those_that_were_struck_start_again() -> None:
    """After `for_s` the nodes that lost their power are back, and nobody else is started."""
    run = run_with(
        'kind = "power_cut"; node = "b"; at_s = 3.0',
        'kind = "power_cut"; node = "*"; at_s = 5.0; for_s = 1.0',
    )
    assert [node.node.key for node in run.nodes.values() if node.node] == ["a.2", "b.1"]


# --- again and again ---------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5))
def test_a_crash_loop_strikes_after_each_return(times: int, down_s: int, up_s: int) -> None:
    """The n-th strike comes once the node has been back for so long, and after the last one it is back."""
    loop = f'kind = "power_cut"; node = "a"; at_s = 2.0; for_s = {down_s}.0; times = {times}; '
    run = run_with(loop + f"again_after_s = {up_s}.0")
    assert applied(run) == [("power_cut", "a", 2.0 + nth * (down_s + up_s)) for nth in range(times)]
    assert run.nodes["a"].node is not None
    assert run.nodes["a"].node.incarnation == times + 1


def test_a_fault_that_strikes_again_has_ended_with_its_last_strike() -> None:
    """What comes after it comes after all of it."""
    run = run_with(
        'as = "loop"; kind = "stall"; node = "b"; at_s = 1.0; for_s = 2.0; times = 3; again_after_s = 1.0',
        'kind = "clock_step"; node = "b"; by_ms = 5; when = { after = "loop", delay_s = 0.5 }',
    )
    assert applied(run)[-1] == ("clock_step", "b", 9.5)


# --- standing still for several reasons --------------------------------------------------------------


def test_a_node_stands_still_for_as_long_as_anything_holds_it() -> None:
    """The end of a shorter stall doesn't end a longer one; each ends by itself."""
    run = run_with(
        'kind = "stall"; node = "b"; at_s = 1.0; for_s = 10.0',
        'kind = "stall"; node = "b"; at_s = 2.0; for_s = 3.0',
        'kind = "suspend"; node = "b"; at_s = 3.0; for_s = 20.0',
    )
    assert states(run, "b.1") == [(1.0, "paused"), (23.0, "running")]


def test_a_restart_ends_what_held_the_node() -> None:
    """A stall of an incarnation that died holds no later one, and its end doesn't free a later one."""
    run = run_with(
        'kind = "stall"; node = "b"; at_s = 1.0; for_s = 10.0',
        'kind = "power_cut"; node = "b"; at_s = 2.0; for_s = 1.0',
        'kind = "stall"; node = "b"; at_s = 5.0; for_s = 20.0',
    )
    assert states(run, "b.2") == [(5.0, "paused"), (25.0, "running")]


@pytest.mark.parametrize(("stops", "monotonic_s"), [("true", 10.0), ("false", 30.0)])
def test_a_suspended_machine_counts_its_sleep_or_not(stops: str, monotonic_s: float) -> None:
    """The monotonic clock stands still for the 20 s of a suspend, or goes on, as the fault says."""
    world = World(
        scenario_of(f'kind = "suspend"; node = "b"; at_s = 5.0; for_s = 20.0; monotonic_stops = {stops}'),
        Tape.fifo(),
    )
    seen: list[float] = []

    def look() -> None:
        clock = world.nodes["b"].clock
        assert clock is not None
        seen.append(clock.monotonic_ns() / 1e9)

    world.kernel.at(30_200_000_000, look)
    world.run().close()
    assert seen == [monotonic_s]
    assert world.nodes["b"].suspended is (stops == "true")


# --- clocks ------------------------------------------------------------------------------------------


def test_a_slew_is_spread_over_its_time() -> None:
    """Half way through, half of it is done, and it is written down for as long as it takes."""
    run = run_with('kind = "clock_slew"; node = "b"; at_s = 10.0; by_ms = -3000; for_s = 20.0')
    shown = [run.nodes["b"].wall.read_ms(at_s * 1_000_000_000) for at_s in (10, 20, 30, 40)]
    assert shown == [10_000, 18_500, 27_000, 37_000]
    assert [(one.moment.true_ms, one.until_ms) for one in run.ledger.faults] == [(10_000, 30_000)]


def test_a_rate_outlives_a_restart_and_ends_in_its_time() -> None:
    """The crystal belongs to the machine: its next incarnation runs at the same rate, until that is over."""
    world = World(
        scenario_of(
            'kind = "monotonic_rate"; node = "b"; at_s = 1.0; ppm = 1000000; for_s = 9.0',
            'kind = "power_cut"; node = "b"; at_s = 3.0; for_s = 1.0',
        ),
        Tape.fifo(),
    )
    seen: list[float] = []

    def look() -> None:
        clock = world.nodes["b"].clock
        assert clock is not None
        seen.append(clock.monotonic_ns() / 1e9)

    for at_s in (3, 5, 10, 12):
        world.kernel.at(at_s * 1_000_000_000 - 1, look)
    world.run().close()
    assert seen == pytest.approx([0.8 + 2 * 2, 2 * 1, 2 * 6, 2 * 6 + 2])
    assert world.nodes["b"].rate_changed


# --- slow nodes --------------------------------------------------------------------------------------


def test_each_gate_of_a_slow_node_takes_its_time() -> None:
    """While it is slow, two gates of the node are never chosen closer to each other than that, and others
    aren't slower."""
    run = run_with('kind = "slow"; node = "a"; at_s = 0.001; for_s = 30.0; gate_ms = 40')
    for node, gap_ms, holds in (("a.1", 40, True), ("b.1", 40, False)):
        chosen = [
            one.true_ms
            for one in run.trace.entries
            if one.kind == "gate" and one.node == node and 1 < one.true_ms < 30_000
        ]
        assert len(chosen) > 5
        gaps = [later - earlier for earlier, later in itertools.pairwise(chosen) if later > earlier]
        together = sum(later == earlier for earlier, later in itertools.pairwise(chosen))
        assert (together == 0 and min(gaps) >= gap_ms) is holds
    late = [one for one in run.trace.entries if one.kind == "node" and one.true_ms > 30_100]
    assert late == []


# --- store errors ------------------------------------------------------------------------------------


def test_a_store_error_counts_once_a_batch_met_it() -> None:
    """It lies in wait: it was applied when the first batch failed, and never if none did."""
    met = run_with('kind = "store_error"; node = "a"; at_s = 5.0; error = "StoreBusy"; batches = 2')
    assert [(one.kind, one.moment.true_ms > 5_000) for one in met.ledger.faults] == [("store_error", True)]
    unmet = run_with('kind = "store_error"; node = "b"; at_s = 600.0')
    assert unmet.ledger.faults == []
