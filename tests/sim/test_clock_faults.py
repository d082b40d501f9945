"""Faults of a node's clocks that come with a machine's boot or sleep."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sim.clock import WallClock
from sim.kernel import NS_PER_S
from sim.scenario.model import NodeClock as ScenarioClock
from tests.sim.test_clock import run

# --- a wrong clock at boot ---------------------------------------------------------------------------


@given(st.lists(st.integers(0, 60), max_size=5), st.integers(1, 20), st.integers(0, 90))
def test_a_clock_is_wrong_for_a_while_after_each_boot(boots_s, for_s, at_s):
    """It is off by the boot's offset, once, while any boot is less than that long ago; never else."""
    wall = WallClock(ScenarioClock(boot_offset_ms=-7000, boot_for_s=float(for_s)))
    for boot_s in sorted(boots_s):
        wall.boot(boot_s * NS_PER_S)
    wrong = any(boot_s <= at_s < boot_s + for_s for boot_s in boots_s)
    assert wall.read_ms(at_s * NS_PER_S) == at_s * 1000 - 7000 * wrong


def test_years_are_no_trouble_to_a_wall_clock():
    """A machine that boots in 1970 and is corrected shows 0 first, and then the year that it is."""
    year_ms = 1_800_000_000_000
    wall = WallClock(ScenarioClock(offset_ms=year_ms, boot_offset_ms=-year_ms, boot_for_s=2.0))
    wall.boot(0)
    assert [wall.read_ms(at_s * NS_PER_S) for at_s in (0, 1, 2)] == [0, 1000, year_ms + 2000]


# --- a monotonic clock that stops and goes on --------------------------------------------------------


def test_a_monotonic_clock_that_was_stopped_goes_on_from_where_it_stood():
    """Stopping it twice is stopping it once, and starting one that runs changes nothing."""

    async def body(k, clock):
        k.at(1 * NS_PER_S, clock.stop_monotonic)
        k.at(2 * NS_PER_S, clock.stop_monotonic)
        k.at(5 * NS_PER_S, clock.start_monotonic)
        k.at(6 * NS_PER_S, clock.start_monotonic)
        await clock.sleep(3)
        assert (k.now_ms, clock.monotonic()) == (7_000, 3)

    run(body)
