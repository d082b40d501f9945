"""What is saved can be read again, and says which rule it broke."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from sim.saved import dump, found_by, is_valid, rule_found
from sim.scenario import Fault, Scenario, TapeSpec, parse_scenario
from sim.verdict import Violation

WORLD = 'proves = "Nothing."\nname = "w"\n[[nodes]]\nname = "a"\n[[sessions]]\nname = "s"\n'


def scenario(proves: str) -> Scenario:
    found, problems = parse_scenario(WORLD, "w.toml")
    assert found is not None, problems
    return attrs.evolve(found, proves=proves)


@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=80),
    st.sampled_from(["I3", "I16", "one seat each", "expect"]),
    st.booleans(),
)
def test_a_saved_failure_names_its_rule(sentence: str, rule: str, placed: bool) -> None:
    """Whatever its sentence holds, the rule can be read from the file that was written."""
    clocks = {"a": 1_000} if placed else {}
    violation = Violation(rule=rule, sentence=sentence, session="ses_s" if placed else None, clocks=clocks)
    written = dump(scenario(found_by("fuzzing", violation)))
    again, problems = parse_scenario(written, "again.toml")
    assert again is not None, problems
    assert rule_found(again) == rule


def test_a_file_that_nobody_found_names_none() -> None:
    """A sentence of a person's own isn't taken for a finding."""
    assert rule_found(scenario("A claim that expired stays dead (I3).")) is None
    assert rule_found(scenario("Found by fuzzing, and must hold: it broke")) is None


@given(st.lists(st.integers(0, 300), max_size=200), st.booleans())
def test_a_tape_is_read_as_it_was_written(draws: list[int], there: bool) -> None:
    """A long one stands on lines that can be read, and one of zeros alone is still a tape to replay."""
    tape = TapeSpec(schedule=tuple(draws)) if there else None
    written = dump(attrs.evolve(scenario("Nothing."), tape=tape))
    again, problems = parse_scenario(written, "again.toml")
    assert again is not None, problems
    assert again.tape == tape
    assert max(len(line) for line in written.splitlines()) <= 110


def test_a_scenario_is_valid_if_its_file_has_no_problem() -> None:
    """The names that it mentions must be there, and the keys of each table go together."""
    whole = scenario("Nothing.")
    assert is_valid(whole)
    stall = Fault(kind="stall", node="a", at_s=1.0, for_s=2.0)
    assert is_valid(attrs.evolve(whole, faults=(stall, attrs.evolve(stall, node="*"))))
    for wrong in (
        attrs.evolve(stall, node="b"),
        attrs.evolve(stall, for_s=None),
        attrs.evolve(stall, kind="power_loss"),
    ):
        broken = attrs.evolve(whole, faults=(wrong,))
        assert not is_valid(broken)
        assert parse_scenario(dump(broken), "again.toml")[1] != []
