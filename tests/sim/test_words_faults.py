"""Each kind of fault reads as a clause of a sentence."""

from __future__ import annotations

import typing
from collections.abc import Iterator

import attrs
import pytest

from sim.ledger import FaultApplied, Moment
from sim.record import Record
from sim.scenario import ClockStep, Fault, NodeClock, parse_scenario
from sim.tape import Tape
from sim.words.faults import AT_ONCE, LASTING, OF_THE_MACHINE, ON_CLOCKS, befell, jumped, way
from sim.world import World
from tests.sim.test_machine import run_with

WORLD = 'proves = "Nothing."\nname = "w"\n[[nodes]]\nname = "a"\n[[sessions]]\nname = "s"\n'


@pytest.fixture
def record() -> Iterator[Record]:
    """Of a run in which the clock of `a` jumps back by 5 s at 3 s."""
    scenario, _ = parse_scenario(WORLD, "w.toml")
    assert scenario is not None
    clock = NodeClock(steps=(ClockStep(at_s=3.0, by_ms=-5_000),))
    nodes = (attrs.evolve(scenario.nodes[0], clock=clock),)
    run = World(attrs.evolve(scenario, nodes=nodes), Tape.fifo()).run()
    yield Record(run)
    run.close()


def fault(kind: str, at_ms: float = 3_000.0, until_ms: float | None = 12_240.0, **more: bool) -> FaultApplied:
    moment = Moment(entry=0, true_ms=at_ms, clocks={"a": int(at_ms)})
    return FaultApplied(moment=moment, name="f", kind=kind, node="a", until_ms=until_ms, **more)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("stall", "a stalled 9.2 s from 3.0 s on"),
        ("suspend", "a was suspended 9.2 s from 3.0 s on"),
        ("take_over", "a stood still 9.2 s from 3.0 s on"),
        ("slow", "a was slow 9.2 s from 3.0 s on"),
        ("power_cut", "a lost its power at 3.0 s"),
        ("cancel", "a was cancelled at 3.0 s"),
        ("store_error", "a's store failed at 3.0 s"),
        ("clock_step", "a's clock jumped back 5.0 s at 3.0 s"),
        ("monotonic_rate", "a's monotonic clock changed its rate at 3.0 s"),
        ("power_loss", "the machine lost its power at 3.0 s"),
        ("disk_error", "the disk failed at 3.0 s"),
        ("disk_full", "the disk was full 9.2 s from 3.0 s on"),
        ("something_new", "a met a fault (something_new) at 3.0 s"),
    ],
)
def test_a_fault_in_words(record: Record, kind: str, words: str) -> None:
    """What befell whom, when, and for how long if it lasts."""
    assert befell(record, fault(kind), 60_000.0) == words


def test_every_kind_has_words() -> None:
    """No kind of a scenario's faults is told by its key."""
    kinds = typing.get_args(typing.get_type_hints(Fault)["kind"])
    told = {*LASTING, *AT_ONCE, *OF_THE_MACHINE, *ON_CLOCKS, "store_error"}
    assert [kind for kind in kinds if kind not in told] == []


def test_a_fault_that_goes_on_has_no_duration_yet(record: Record) -> None:
    """It is told as far as it had come: not before its end, nor if it never ended."""
    assert befell(record, fault("stall"), 12_239.0) == "a stalled from 3.0 s on"
    assert befell(record, fault("stall"), 12_240.0) == "a stalled 9.2 s from 3.0 s on"
    assert befell(record, fault("stall", until_ms=None), 1e9) == "a stalled from 3.0 s on"


def test_a_commit_that_was_hidden_is_told(record: Record) -> None:
    """A store error after a commit that was applied is another thing than one before it."""
    assert befell(record, fault("store_error", applied=True), 9_000.0) == (
        "a's store failed and hid that it had committed at 3.0 s"
    )


def test_a_slew_is_told_by_how_far_it_came(record: Record) -> None:
    """At its end the whole of it, and too small a part isn't counted."""
    assert befell(record, fault("clock_slew", at_ms=2_000.0, until_ms=4_000.0), 9_000.0) == (
        "a's clock was slewed 5.0 s behind 2.0 s from 2.0 s on"
    )
    assert befell(record, fault("clock_slew", at_ms=2_000.0, until_ms=4_000.0), 2_500.0) == (
        "a's clock was slewed from 2.0 s on"
    )


def test_ways() -> None:
    """Which way a clock is off, in seconds or, where it is far off, in days."""
    assert [way(ms) for ms in (-6_000, 900, 99, -86_400_000, 1_800_000_000_000)] == [
        "6.0 s behind",
        "0.9 s ahead",
        "right",
        "86400.0 s behind",
        "20833 days ahead",
    ]
    assert jumped("a", 400, 2_000.0) == "a's clock jumped ahead 0.4 s at 2.0 s"


@pytest.mark.parametrize(
    ("operations", "since_s", "words"),
    [
        (1, 0.1, "the disk's sync failed at 0.4 s"),
        (2, 0.1, "the disk's sync failed twice from 0.4 s on"),
        (3, 0.1, "the disk's sync failed 3 times from 0.4 s on"),
    ],
)
def test_an_error_of_the_disk_is_told_from_what_it_met(operations: int, since_s: float, words: str) -> None:
    """Which operation failed, how often, and from when on: not from when it lay in wait."""
    run = run_with(f'kind = "disk_error"; operation = "sync"; operations = {operations}; at_s = {since_s}')
    assert {befell(Record(run), one, run.virtual_ms) for one in run.ledger.faults} == {words}
