"""A node's clocks and its scopes."""

from __future__ import annotations

import math

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.ports import Clock
from sim.clock import NodeClock, RightClock, WallClock
from sim.gate import PowerCut
from sim.kernel import NS_PER_MS, NS_PER_S, Kernel
from sim.scenario.model import ClockStep
from sim.scenario.model import NodeClock as ScenarioClock
from sim.tape import Tape
from sim.trace import Trace

PPMS = st.integers(-900_000, 3_000_000)


def suspend(k, clock):
    """What befalls a machine whose monotonic clock doesn't count sleep."""
    clock.stop_monotonic()
    k.pause(clock._node)


def wake_up(k, clock):
    """The machine goes on."""
    clock.start_monotonic()
    k.resume(clock._node)


def run(body, spec=None, tape=None):
    """Run `body(kernel, clock)` as the only task of a node; returns the kernel."""
    k = Kernel(tape or Tape.fifo(), Trace())

    async def main():
        clock = NodeClock(k, k.add_node("a"), spec)
        await body(k, clock)

    k.run(main)
    return k


# --- the wall clock ----------------------------------------------------------------------------------


def test_a_right_wall_clock_shows_true_time():
    """Without faults the wall clock is true time in whole milliseconds."""

    async def body(k, clock):
        assert clock.now_ms() == 0
        await clock.sleep(1.2349)
        assert clock.now_ms() == 1234

    run(body)


@given(
    st.integers(-(10**6), 10**6),
    PPMS,
    st.lists(st.tuples(st.integers(0, 100), st.integers(-9000, 9000)), max_size=4),
    st.integers(0, 200),
)
def test_the_wall_clock_is_offset_drift_and_steps(offset_ms, drift_ppm, steps, at_s):
    """What it shows is true time, plus offset, plus drift, plus the steps so far."""
    spec = ScenarioClock(
        offset_ms=offset_ms,
        drift_ppm=drift_ppm,
        steps=tuple(ClockStep(at_s=float(when), by_ms=by) for when, by in steps),
    )
    true_ms = at_s * 1000
    stepped = sum(by for when, by in steps if when <= at_s)
    expected = true_ms + offset_ms + math.floor(true_ms * drift_ppm / 1_000_000) + stepped
    assert abs(WallClock(spec).read_ms(at_s * NS_PER_S) - expected) <= 1


def test_steps_and_slews_of_a_running_clock():
    """A step moves the wall clock at once, a slew bit by bit; the monotonic clock feels neither."""

    async def body(k, clock):
        await clock.sleep(1)
        clock.step(-3000)
        assert clock.now_ms() == -2000
        clock.slew(1000, over_s=10)
        await clock.sleep(5)
        assert clock.now_ms() == 3500
        await clock.sleep(5)
        assert clock.now_ms() == 9000
        assert clock.monotonic() == 11

    run(body)


def test_the_wall_clock_outlives_an_incarnation():
    """A restarted node finds its wall clock as wrong as it was; its monotonic clock begins again."""

    async def body(k, clock):
        clock.step(500)
        await clock.sleep(2)
        again = NodeClock(k, k.add_node("a"), wall=clock.wall)
        assert again.wall_ms() == clock.wall_ms() == 2500
        assert again.monotonic_ns() == 0

    run(body)


# --- the monotonic clock -----------------------------------------------------------------------------


@given(PPMS, st.lists(st.floats(0, 50, allow_nan=False), min_size=1, max_size=4))
def test_sleep_waits_on_the_nodes_own_clock(ppm, naps):
    """Whatever its rate, a node that slept n seconds sees at least n on its clock, and hardly more."""

    async def body(k, clock):
        for nap in naps:
            before = clock.monotonic()
            await clock.sleep(nap)
            assert nap - 1e-9 <= clock.monotonic() - before <= nap + 1e-5

    k = run(body, RightClock(monotonic_ppm=ppm))
    assert k.now_ns == pytest.approx(sum(naps) * 1e15 / (1_000_000 + ppm), abs=100, rel=1e-6)


@given(
    st.lists(st.tuples(st.integers(0, 3000), PPMS | st.just(-1_000_000)), max_size=6), st.integers(1, 9000)
)
def test_a_sleeper_follows_every_change_of_rate(changes, nap_ms):
    """However the rate changes meanwhile, a sleeper wakes when its clock shows the moment, not before."""
    woke = []

    async def body(k, clock):
        async def sleeper():
            await clock.sleep(nap_ms / 1000)
            woke.append(clock.monotonic())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper, name="sleeper")
            last = 0
            for when, ppm in sorted(changes):
                last = when
                k.at(when * NS_PER_MS, lambda ppm=ppm: clock.set_monotonic_ppm(ppm))
            k.at((last + 1) * NS_PER_MS, lambda: clock.set_monotonic_ppm(0))

    run(body)
    assert nap_ms / 1000 <= woke[0] <= nap_ms / 1000 + 1e-8


def test_suspend_stops_the_monotonic_clock_alone():
    """While suspended no task runs and the monotonic clock stands; the wall clock goes on."""
    seen = []

    async def body(k, clock):
        k.at(1 * NS_PER_S, lambda: suspend(k, clock))
        k.at(11 * NS_PER_S, lambda: wake_up(k, clock))
        await clock.sleep(2)
        seen.append((k.now_ms, clock.monotonic(), clock.now_ms()))

    run(body)
    assert seen == [(12_000, 2, 12_000)]


def test_suspend_may_leave_the_monotonic_clock_running():
    """On machines whose monotonic clock counts sleep, what was due meanwhile is due at waking."""
    seen = []

    async def body(k, clock):
        k.at(1 * NS_PER_S, lambda: k.pause(clock._node))
        k.at(11 * NS_PER_S, lambda: k.resume(clock._node))
        await clock.sleep(2)
        seen.append((k.now_ms, clock.monotonic()))

    run(body)
    assert seen == [(11_000, 11)]


# --- scopes ------------------------------------------------------------------------------------------


def test_a_scope_is_cancelled_by_its_nodes_clock():
    """The deadline is a reading of the node's monotonic clock."""

    async def body(k, clock):
        with clock.scope(clock.monotonic() + 3) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught
        assert scope.cancel_called
        assert k.now_ms == pytest.approx(3 / 2 * 1000)

    run(body, RightClock(monotonic_ppm=1_000_000))


def test_a_scope_whose_deadline_has_passed_is_cancelled_at_once():
    """Entering late delivers the cancellation at the first checkpoint."""

    async def body(k, clock):
        await clock.sleep(1)
        with clock.scope(1.0) as scope:
            await clock.checkpoint()
            raise AssertionError("not reached")
        assert scope.cancelled_caught
        assert scope.cancel_called

    run(body)


def test_a_deadline_that_was_reached_shows_before_its_timer_fires():
    """`cancel_called` is true as soon as the clock shows the deadline, as with Trio's own scopes."""

    async def body(k, clock):
        with clock.scope(1.0) as scope:
            await clock.sleep(1.0)
            assert scope.cancel_called

    run(body, tape=Tape.replay({"schedule": [1]}))
    run(body)


def test_move_sets_a_deadline_earlier_later_or_never():
    """The latest deadline that was set counts, also for a scope that began without one."""

    async def body(k, clock):
        with clock.scope(5.0) as scope:
            scope.move(1.0)
            await clock.sleep(60)
        assert (scope.cancelled_caught, k.now_ms) == (True, 1_000)
        with clock.scope(2.0) as scope:
            scope.move(math.inf)
            await clock.sleep(60)
        assert not scope.cancelled_caught
        with clock.scope() as scope:
            scope.move(62.0)
            await clock.sleep(60)
        assert (scope.cancelled_caught, k.now_ms) == (True, 62_000)

    run(body)


def test_extend_moves_a_deadline_later_only():
    """A later deadline counts, an earlier one is ignored, an infinite one never comes."""

    async def body(k, clock):
        with clock.scope(1.0) as scope:
            scope.extend(4.0)
            scope.extend(2.0)
            await trio.sleep_forever()
        assert k.now_ms == 4000
        with clock.scope(5.0) as scope:
            scope.extend(math.inf)
            await clock.sleep(100)
        assert not scope.cancel_called

    run(body)


def test_extending_in_the_last_moment_is_in_time():
    """A deadline moved when it was due, but before its timer was chosen, doesn't fire."""

    async def body(k, clock):
        with clock.scope(1.0) as scope:
            await clock.sleep(1.0)
            scope.extend(3.0)
            await clock.sleep(1.0)
        assert not scope.cancel_called

    # The sleeper is chosen before the timer that is due at the same moment.
    assert "timer" not in [
        entry.kind for entry in run(body, tape=Tape.replay({"schedule": [1]})).trace.entries
    ]


def test_a_scope_that_was_left_fires_no_more():
    """Leaving a scope takes its timer away."""

    async def body(k, clock):
        with clock.scope(1.0):
            await clock.checkpoint()
        await clock.sleep(3)
        assert not clock._due

    k = run(body)
    assert not [entry for entry in k.trace.entries if entry.kind == "timer"]


@given(PPMS, st.integers(1, 5000), st.integers(1, 3000))
def test_a_scope_follows_suspend_and_rate(ppm, after_ms, asleep_ms):
    """A suspend delays a deadline by what the monotonic clock missed."""
    ended = []

    async def body(k, clock):
        k.at(after_ms * NS_PER_MS, lambda: suspend(k, clock))
        k.at((after_ms + asleep_ms) * NS_PER_MS, lambda: wake_up(k, clock))
        with clock.scope(2.0):
            await trio.sleep_forever()
        ended.append((k.now_ms, clock.monotonic()))

    run(body, RightClock(monotonic_ppm=ppm))
    plain_ms = 2000 * 1_000_000 / (1_000_000 + ppm)
    expected = plain_ms if plain_ms < after_ms else plain_ms + asleep_ms
    assert ended[0][0] == pytest.approx(expected, abs=0.01)
    assert ended[0][1] >= 2.0


def test_a_shield_is_always_bounded():
    """An unbounded shield is a bug of the caller."""

    async def body(k, clock):
        with pytest.raises(AssertionError, match="always bounded"):
            clock.scope(shield=True)
        with trio.CancelScope() as outer:
            outer.cancel()
            with clock.scope(clock.monotonic() + 1, shield=True) as scope:
                await clock.sleep(0.5)
                assert not scope.cancel_called
        assert not clock._node.shields

    run(body)


def test_cancelling_by_hand():
    """`cancel` ends the block at once."""

    async def body(k, clock):
        with clock.scope() as scope:
            scope.cancel()
            await clock.sleep(10)
        assert scope.cancelled_caught
        assert k.now_ms == 0

    run(body)


def test_a_frozen_clock_refuses():
    """Once the world is frozen every verb of the clock refuses, and open shields are gone."""
    seen = []

    async def body(k, clock):
        async def node_task():
            try:
                with clock.scope(100.0, shield=True):
                    await trio.sleep_forever()
            finally:
                for call in (clock.now_ms, clock.monotonic, clock.scope(1.0).__enter__):
                    with pytest.raises(PowerCut):
                        call()
                for wait in (lambda: clock.sleep(1), lambda: clock.sleep(0), clock.checkpoint):
                    with pytest.raises((PowerCut, trio.Cancelled)):
                        await wait()
                seen.append("refused")

        with k.ending():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(node_task, name="task")
                await k.sleep_until(NS_PER_MS, node=k.world)
                k.freeze(nursery.cancel_scope)
        assert k.now_ms == 1

    run(body)
    assert seen == ["refused"]


def test_every_call_is_in_the_trace():
    """Arguments and results of all verbs are traced."""

    async def body(k, clock):
        clock.now_ms()
        clock.monotonic()
        await clock.sleep(0.25)
        await clock.sleep(0)
        await clock.checkpoint()
        with clock.scope(9.0):
            await clock.checkpoint()

    k = run(body)
    rows = [(entry.label, *entry.fields.values()) for entry in k.trace.entries if entry.kind == "clock"]
    assert rows == [
        ("now_ms", 0),
        ("monotonic", 0.0),
        ("sleep", 0.25),
        ("sleep", 0),
        ("scope", 9.0, False),
    ]
    gates = [entry.label for entry in k.trace.entries if entry.kind == "gate"]
    assert gates == ["sleep", "sleep", "checkpoint", "checkpoint"]


def test_the_double_has_the_ports_shape():
    """The simulated clock stands in for the engine's own."""

    async def body(k, clock):
        port: Clock = clock
        assert port.now_ms() == 0

    run(body)
