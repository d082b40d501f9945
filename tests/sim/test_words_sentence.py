"""What led to a breach is told in one sentence, in the order of true time, with what broke at its end."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.ablations import ABLATIONS, Ablation, named
from sim.ablations.search import run_seed, telling
from sim.checks import check_invariants
from sim.record import Record
from sim.scenario import ClockStep, Fault, Node, NodeClock, Scenario, parse_scenario
from sim.tape import Tape
from sim.verdict import Violation
from sim.words.sentence import FAULTS_MAX, LENGTH_MAX, TAKEOVERS_MAX, accuse, one_sentence
from sim.world import World

IDS = [ablation.name for ablation in ABLATIONS]
INTERNAL = re.compile(r"\b(exe|msg|inp|ses)_|\w\(\w+=|<[\w.]+ (object|at)\b|\b[A-Z]\w+\(")
"""What only the code's author would understand: ids, and how Python prints an object."""

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)
SEEDS = 5
RIGHT = NodeClock()
TIME = re.compile(r"\d+\.\d s")


def is_one_sentence(text: str) -> bool:
    """On one line, bounded, without a full stop inside or at its end."""
    return 0 < len(text) <= LENGTH_MAX and text == " ".join(text.split()) and ". " not in text + " "


def broken(ablation: Ablation) -> list[Violation]:
    """What breaks in a few of an ablation's own worlds when it is off."""
    found: list[Violation] = []
    with ablation.off(), open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        for seed in range(SEEDS):
            found += run_seed(ablation.sources[seed % len(ablation.sources)], seed)
    return found


@given(st.lists(TEXTS, max_size=6), TEXTS)
def test_clauses_become_one_bounded_sentence(clauses: Sequence[str], what: str) -> None:
    """Whatever the texts hold, the sentence is one, is never empty, and ends with what broke."""
    told = one_sentence(clauses, what)
    assert is_one_sentence(told)
    assert one_sentence(clauses, what) == told
    assert told.endswith(one_sentence([], what))


def test_the_earliest_clauses_give_way() -> None:
    """Where all are too many, those nearest to the breach stay, and each is whole."""
    told = one_sentence(["x" * 150, "y" * 150, "z" * 100], "it broke")
    assert told == f"{'y' * 150}; {'z' * 100}; it broke"
    assert one_sentence(["x"], "y" * 400).endswith("y …")


@pytest.mark.parametrize("ablation", ABLATIONS, ids=IDS)
def test_each_broken_protection_is_told_to_a_stranger(ablation: Ablation) -> None:
    """Every violation is one bounded sentence without ids or reprs that names its node, twice the same."""
    found = broken(ablation)
    assert found != []
    for violation in found:
        assert is_one_sentence(violation.sentence)
        assert INTERNAL.search(violation.sentence) is None, violation.sentence
        if violation.node is not None:
            name = violation.node.partition(".")[0]
            assert re.search(rf"\b{name}\b", violation.sentence), violation.sentence
    assert [str(one) for one in found] == [str(one) for one in broken(ablation)]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "fence_by_execution_id",
            "a was suspended T from T on; b took over at T; "
            "text.ended of a's execution was accepted, "
            "although b's execution had held the session since seq 6",
        ),
        (
            "fresh_execution_id",
            "a was suspended T from T on; b went on with a's execution at T; "
            "a went on with its execution at T; "
            "after a's write at T step 2 has no terminal, and nobody holds the session's claim",
        ),
        (
            "lost_stays_lost",
            "a was suspended T from T on; a's clock jumped back T at T; "
            "a renewed its claim after it had been told that it was lost",
        ),
        (
            "attempts_counted_first",
            "a lost its power at T; b took over at T; b lost its power at T; c took over at T; "
            "c started a step after 2 take-overs without progress, where 1 is allowed",
        ),
        (
            "future_dated_claims",
            "a lost its power at T with its clock T ahead; "
            "a's claim was free to take from T on, and nobody took it up before T",
        ),
        (
            "settlement_in_a_shield",
            "a was cancelled at T; T later a's execution still held its claim, which nobody freed",
        ),
        (
            "renewal_at_a_third",
            "a took over from a's 1st execution at T, though nothing had delayed it",
        ),
        (
            "parked_stays_parked",
            "a wrote input.promoted: input 2 is promoted at seq 11, "
            "and execution.interrupted at seq 9 had parked it",
        ),
    ],
)
def test_what_led_there_is_told_in_its_order(name: str, sentence: str) -> None:
    """Faults, clocks and take-overs come first, by true time, and only those that matter."""
    ablation = named(name)
    with ablation.off(), open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        run = World(ablation.sources[0].make(Tape.fifo(), "world"), Tape.fifo()).run()
        try:
            found = telling(ablation, check_invariants(Record(run)))
        finally:
            run.close()
    assert found is not None
    assert TIME.sub("T", found.sentence) == sentence


WORLD = """
proves = "Nothing."
name = "quiet"
[[nodes]]
name = "a"
[[nodes]]
name = "b"
[[nodes]]
name = "c"
[[sessions]]
name = "s"
[[actions]]
do = "send"
node = "a"
session = "s"
text = "Hello"
at_s = 0.0
"""


def told(*faults: Fault, clock: NodeClock = RIGHT, session: str | None = "ses_s") -> str:
    """What an accusation of node `a` at the end of a run tells of what led there."""
    scenario, _ = parse_scenario(WORLD, "quiet.toml")
    assert scenario is not None
    first, *others = scenario.nodes
    return sentence_of(
        attrs.evolve(scenario, nodes=(attrs.evolve(first, clock=clock), *others), faults=faults), session
    )


def sentence_of(scenario: Scenario, session: str | None) -> str:
    run = World(scenario, Tape.fifo()).run()
    try:
        record = Record(run)
        moment = record.moment_at(run.virtual_ms)
        node = None if session is None else "a.1"
        return accuse(record, "I3", "it broke", session=session, node=node, moment=moment).sentence
    finally:
        run.close()


def stall(node: str, at_s: float) -> Fault:
    return Fault(kind="stall", node=node, at_s=at_s, for_s=0.5)


def test_only_the_nodes_concerned_are_spoken_of() -> None:
    """What befell a node that never had the session isn't told; with nobody to blame, all are."""
    assert told(stall("c", 1.0)) == "it broke"
    assert told(stall("a", 1.0), stall("c", 2.0)) == "a stalled 0.5 s from 1.0 s on; it broke"
    both = "a stalled 0.5 s from 1.0 s on; c stalled 0.5 s from 2.0 s on; it broke"
    assert told(stall("a", 1.0), stall("c", 2.0), session=None) == both


def test_only_the_latest_faults_are_told() -> None:
    """Of many there are the last three, and at most two take-overs."""
    faults = [stall("a", float(at_s)) for at_s in range(1, 7)]
    assert told(*faults).count("stalled") == FAULTS_MAX == 3
    assert "from 4.0 s on; a stalled 0.5 s from 5.0 s on; a stalled 0.5 s from 6.0 s on; it" in told(*faults)
    assert TAKEOVERS_MAX == 2


def test_a_clock_is_worth_a_word_once_it_is_wrong() -> None:
    """From 100 ms on an error is told, with the fault it accompanied or alone, and not again unchanged."""
    assert told(clock=NodeClock(offset_ms=99)) == "it broke"
    assert told(clock=NodeClock(offset_ms=-100)) == "a's clock was 0.1 s behind; it broke"
    late = told(stall("a", 1.0), stall("a", 2.0), clock=NodeClock(offset_ms=6_000))
    first = "a stalled 0.5 s from 1.0 s on with its clock 6.0 s ahead"
    assert late == f"{first}; a stalled 0.5 s from 2.0 s on; it broke"
    step = NodeClock(steps=(ClockStep(at_s=1.0, by_ms=-400),))
    assert told(stall("a", 2.0), clock=step) == (
        "a's clock jumped back 0.4 s at 1.0 s; "
        "a stalled 0.5 s from 2.0 s on with its clock 0.4 s behind; it broke"
    )


def test_a_date_is_no_error() -> None:
    """Where all clocks are set to a day of this century, only what they differ by is wrong."""
    day = 1_800_000_000_000
    scenario, _ = parse_scenario(WORLD, "quiet.toml")
    assert scenario is not None
    nodes = [
        Node(name="a", clock=NodeClock(offset_ms=day - 900)),
        Node(name="b", clock=NodeClock(offset_ms=day)),
    ]
    dated = attrs.evolve(scenario, nodes=tuple(nodes), sessions=scenario.sessions)
    assert sentence_of(dated, "ses_s") == "a's clock was 0.9 s behind; it broke"
