"""Gates, cancellation and virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from sim.kernel import NS_PER_MS, ns_at
from sim.tape import Tape
from tests.sim.kernel_runs import chosen, kernel, run_tasks, stepper

ROOT = Path(__file__).parents[2]


# --- choosing ----------------------------------------------------------------------------------------


def test_the_default_is_first_in_first_out():
    """With a tape of zeros tasks take turns in the order of their names."""
    k = kernel()
    run_tasks(k, *[(name, stepper(k)) for name in ("c", "a", "b")])
    assert chosen(k) == ["a step", "b step", "c step", "a step", "b step", "c step"]


def test_a_draw_picks_from_the_list():
    """Draw n takes the n-th in the order of arrival, and the others keep theirs."""
    k = kernel(Tape.replay({"schedule": [2, 1]}))
    run_tasks(k, *[(name, stepper(k, 1)) for name in "abc"])
    assert chosen(k) == ["c step", "b step", "a step"]
    assert [draw.bound for draw in k.tape.draws["schedule"]] == [3, 2]


def test_every_order_is_reachable():
    """The draws reach every order of four tasks."""
    orders = set()
    for first in range(4):
        for second in range(3):
            for third in range(2):
                k = kernel(Tape.replay({"schedule": [first, second, third]}))
                run_tasks(k, *[(name, stepper(k, 1)) for name in "abcd"])
                orders.add(tuple(chosen(k)))
    assert len(orders) == 24


def test_gates_are_numbered_and_told():
    """`on_park` is told of each gate with its place in the run, in the order of keys."""
    k = kernel()
    told = []
    k.on_park = lambda gate: told.append(
        (gate.index, gate.node.name, gate.incarnation, gate.task, gate.label, gate.nth, dict(gate.info))
    )

    def task(info):
        async def body():
            for _ in range(2):
                await k.gate("x", node=k.roster.nodes[-1], info=info)

        return body

    run_tasks(k, ("t2", task({"i": 2})), ("t1", task({"i": 1})))
    assert told == [
        (0, "a", 1, "t1", "x", 1, {"i": 1}),
        (1, "a", 1, "t2", "x", 1, {"i": 2}),
        (2, "a", 1, "t1", "x", 2, {"i": 1}),
        (3, "a", 1, "t2", "x", 2, {"i": 2}),
    ]


def test_a_held_gate_waits_for_all_others():
    """A held gate is chosen when nothing else can be, but before time moves."""
    k = kernel()
    k.on_park = lambda gate: gate.hold() if gate.task == "a" and gate.nth == 1 else None
    times = []

    async def sleeper():
        await k.sleep_until(5 * NS_PER_MS, node=k.roster.nodes[-1])
        times.append(k.now_ms)

    run_tasks(k, ("a", stepper(k)), ("b", stepper(k, 3)), ("z", sleeper))
    assert chosen(k) == ["b step", "b step", "b step", "a step", "a step", "z sleep"]
    assert times == [5]
    assert k._agenda._held == 0


def test_two_held_gates_are_drawn_from():
    """When only held gates are left, one of them is drawn."""
    k = kernel(Tape.replay({"schedule": [1]}))
    k.on_park = lambda gate: gate.hold()
    run_tasks(k, ("a", stepper(k, 1)), ("b", stepper(k, 1)))
    assert chosen(k) == ["b step", "a step"]


def test_a_gate_can_be_made_to_fail():
    """`fail_with` raises in the task once the gate is chosen."""
    k = kernel()
    k.on_park = lambda gate: gate.fail_with(ValueError("planted"))

    async def task():
        with pytest.raises(ValueError, match="planted"):
            await k.gate("x", node=k.roster.nodes[-1])

    run_tasks(k, ("a", task))


def test_what_the_hook_wakes_runs_before_the_next_choice():
    """After a hook that cancelled something, woken tasks run until they park; then the choice is made."""
    k = kernel()
    scope = trio.CancelScope()
    order = []

    def hook(gate):
        if gate.label == "trigger":
            scope.cancel()
            return True
        return False

    k.on_park = hook

    async def waiter():
        with scope:
            await trio.sleep_forever()
        order.append("unwound")

    async def trigger():
        await k.gate("trigger", node=k.roster.nodes[-1])
        order.append("chosen")

    run_tasks(k, ("w", waiter), ("t", trigger))
    assert order == ["unwound", "chosen"]


# --- cancellation ------------------------------------------------------------------------------------


def test_cancellations_are_delivered_when_drawn():
    """Two tasks cancelled together unwind in the drawn order, not in one of Trio's."""

    def run(draws):
        k = kernel(Tape.replay({"schedule": draws}))
        order = []

        def task(name):
            async def body():
                try:
                    await k.sleep_until(10**12, node=k.roster.nodes[-1])
                finally:
                    order.append(name)

            return body

        async def main():
            k.add_node("a")
            async with trio.open_nursery() as nursery:
                for name in "pqr":
                    nursery.start_soon(task(name), name=name)
                await k.gate("go", node=k.world)
                nursery.cancel_scope.cancel()

        k.run(main)
        assert k.now_ms == 0, "a cancelled sleeper is due at once"
        return order

    for _ in range(5):
        assert run([]) == ["p", "q", "r"]
        assert run([2, 1]) == ["r", "q", "p"]


def test_a_gate_may_refuse_cancellation():
    """A gate that delivers none lets its task go on, and the next one raises."""
    k = kernel()
    seen = []

    async def task():
        node = k.roster.nodes[-1]
        with trio.CancelScope() as scope:
            scope.cancel()
            await k.gate("store", node=node, deliver_cancel=False)
            seen.append("passed")
            await k.gate("next", node=node)
            seen.append("never")
        assert scope.cancelled_caught

    run_tasks(k, ("a", task))
    assert seen == ["passed"]


def test_a_woken_gate_returns_its_value():
    """An asleep gate isn't chosen until it is woken; then its wait returns the value or raises."""
    k = kernel()
    got = []

    async def task():
        gate = k.open_gate("wait", node=k.roster.nodes[-1], asleep=True)
        waiting.append(gate)
        try:
            got.append(await gate.wait())
        except ValueError as exc:
            got.append(str(exc))

    async def waker():
        for nth in range(3):
            await k.gate("x", node=k.roster.nodes[-1])
            if nth == 1:
                waiting[0].wake("value")
                waiting[1].wake(error=ValueError("bad"))

    waiting = []
    run_tasks(k, ("a", task), ("b", task), ("w", waker))
    assert sorted(got) == ["bad", "value"]


@pytest.mark.parametrize(("draws", "expected"), [([1, 0], "outcome"), ([0], "cancelled")])
def test_a_taken_wait_is_not_cancelled_any_more(draws, expected):
    """Whether a wait is withdrawn or taken first is a draw; once taken, it waits for its outcome."""
    k = kernel(Tape.replay({"schedule": draws}))
    gates, got = [], []
    scope = trio.CancelScope()

    async def caller():
        with scope:
            gates.append(k.open_gate("wait", node=k.roster.nodes[-1], asleep=True))
            got.append(await gates[0].wait())
        if scope.cancelled_caught:
            got.append("cancelled")

    async def taker():
        node = k.roster.nodes[-1]
        await k.gate("begin", node=node)
        scope.cancel()
        await k.gate("take", node=node)
        if got:
            return
        gates[0].refuse_cancel()
        await k.gate("commit", node=node)
        gates[0].wake("outcome")

    run_tasks(k, ("a caller", caller), ("taker", taker))
    assert got == [expected]


# --- time --------------------------------------------------------------------------------------------


def test_time_moves_only_when_nothing_can_be_chosen():
    """Timers fire in the order of their moments, each at its own."""
    k = kernel()
    fired = []
    for when in (30, 10, 20):
        k.at(when * NS_PER_MS, lambda when=when: fired.append((when, k.now_ms)))

    async def main():
        await k.sleep_until(40 * NS_PER_MS, node=k.world)

    k.run(main)
    assert fired == [(10, 10), (20, 20), (30, 30)]
    assert k.now_ms == 40


@pytest.mark.parametrize(("draws", "expected"), [([], ["one", "two"]), ([1], ["two", "one"])])
def test_timers_due_together_are_drawn(draws, expected):
    """Which of two timers that are due at one moment fires first is a draw."""
    k = kernel(Tape.replay({"schedule": draws}))
    fired = []
    k.at(NS_PER_MS, lambda: fired.append("one"))
    k.at(NS_PER_MS, lambda: fired.append("two"))

    async def main():
        await k.sleep_until(2 * NS_PER_MS, node=k.world)

    k.run(main)
    assert fired == expected


def test_timers_can_be_moved_and_cancelled():
    """A moved timer fires at its last moment; a cancelled one never, even when it was due already."""
    k = kernel()
    fired = []
    early = k.at(NS_PER_MS, lambda: fired.append("early"))
    late = k.at(None, lambda: fired.append("late"))
    doomed = k.at(2 * NS_PER_MS, lambda: fired.append("doomed"))
    k.at(2 * NS_PER_MS, lambda: fired.append("other"))
    early.move(3 * NS_PER_MS)
    late.move(4 * NS_PER_MS)
    late.move(1 * NS_PER_MS)

    async def main():
        k.at(NS_PER_MS // 2, doomed.cancel)
        due = k.at(NS_PER_MS, lambda: fired.append("due"))
        k.at(NS_PER_MS, lambda: fired.append("never"), label="zz").move(None)
        k.at(NS_PER_MS, due.cancel, label="a")
        await k.sleep_until(9 * NS_PER_MS, node=k.world)
        late.cancel()

    k.run(main)
    assert fired == ["late", "other", "early"]


def test_trios_own_deadlines_are_not_passed():
    """Virtual time stops at a deadline of Trio's, before and after the kernel's timers."""
    k = kernel()
    seen = []

    async def main():
        k.at(10 * NS_PER_MS, lambda: seen.append(("timer", k.now_ms)))
        for seconds in (0.005, 0.020):
            with trio.move_on_after(seconds):
                await trio.sleep_forever()
            seen.append(("trio", k.now_ms))

    k.run(main)
    assert seen == [("trio", 5), ("timer", 10), ("trio", 25)]


@given(st.floats(0, 1e6, allow_nan=False))
def test_nanoseconds_never_come_early(seconds):
    """A moment given in seconds is reached, and by less than a few nanoseconds, when read back."""
    ns = ns_at(seconds)
    assert ns / 1e9 >= seconds
    assert ns / 1e9 - seconds <= 2e-9 + seconds * 1e-15
