"""Every protection that is switched off is missed by an invariant; and switching it off leaves no trace."""

from __future__ import annotations

import contextlib
import json
import sys
from types import ModuleType

import attrs
import pytest
from click.testing import CliRunner

from engine import drain
from engine.providers.script import says
from sim.__main__ import main
from sim.ablations import ABLATIONS, Ablation, Source, named, off_turns, search, worlds
from sim.ablations.patching import patched
from sim.ablations.search import run_seed
from sim.scenario import Scenario
from sim.tape import Tape

IDS = [ablation.name for ablation in ABLATIONS]
SEEDS_MAX = 25


def engine_as_it_is() -> dict[str, int]:
    """The identity of everything that engine modules and their classes hold."""
    found: dict[str, int] = {}
    for name, module in sorted(sys.modules.items()):
        if name.startswith("engine.") and isinstance(module, ModuleType):
            for attribute, value in list(vars(module).items()):
                found[f"{name}.{attribute}"] = id(value)
                if isinstance(value, type) and value.__module__ == name:
                    found |= {f"{name}.{attribute}.{own}": id(held) for own, held in vars(value).items()}
    return found


@pytest.mark.parametrize("ablation", ABLATIONS, ids=IDS)
def test_an_ablation_applies_and_restores(ablation: Ablation) -> None:
    """Inside it one to three things of the engine differ; afterwards, by an error too, none does."""
    before = inside = engine_as_it_is()
    with contextlib.suppress(ZeroDivisionError), ablation.off():
        inside = engine_as_it_is()
        raise ZeroDivisionError
    assert inside.keys() == before.keys()
    assert 1 <= sum(inside[key] != before[key] for key in before) <= 3
    assert engine_as_it_is() == before


def test_each_ablation_is_a_protection_of_its_own() -> None:
    """There are 25, each with a name, words and a docstring that says what is changed."""
    assert len({ablation.name for ablation in ABLATIONS}) == 25
    assert len({ablation.protection for ablation in ABLATIONS}) == 25
    assert [ablation.name for ablation in ABLATIONS if not ablation.off.__doc__] == []


@pytest.mark.parametrize("ablation", ABLATIONS, ids=IDS)
def test_an_ablation_is_found(ablation: Ablation) -> None:
    """An invariant that must see it breaks within a few seeds, and none breaks with the protection on."""
    finding = search(ablation, seeds_max=SEEDS_MAX, sample=1)
    assert finding.control == ()
    assert finding.violation is not None, f"nothing broke in {finding.runs} seeds"
    assert finding.violation.rule in ablation.invariants
    assert finding.seeds == finding.runs
    assert finding.hits == 1


def test_what_breaks_with_the_protection_on_is_no_find() -> None:
    """If a world breaks in its control run, the search ends there and says so."""
    broken = Source(
        make=worlds.cut_off_after_text, trouble=lambda tape: off_turns.retry_before_visible_output()
    )
    finding = search(named("retry_before_visible_output"), sources=[broken])
    assert not finding.found
    assert finding.runs == 1
    assert "I13" in finding.control[0]


def test_a_start_after_the_claim_is_gone_is_seen() -> None:
    """Also where the successor has ended and cleared its claim by then, nothing may start."""

    def short(tape: Tape, name: str) -> Scenario:
        world = worlds.stalled_before_a_start(tape, name)
        answers = tuple(attrs.evolve(one, replies=(says("Done."),)) for one in world.sessions)
        return attrs.evolve(world, sessions=answers)

    found = search(named("scope_before_the_lease"), seeds_max=40, sources=[Source(make=short)])
    assert found.control == ()
    assert found.violation is not None
    assert found.violation.rule == "I3"
    assert found.violation.sentence.endswith("a opened a request although its claim was gone")


def test_what_no_world_shows_is_not_found() -> None:
    """Worlds in which a protection isn't needed don't prove that it is."""
    finding = search(named("lease_rule"), seeds_max=3, sources=[Source(make=worlds.cut_off_after_text)])
    assert (finding.found, finding.violation, finding.by) == (False, None, None)
    assert (finding.seeds, finding.runs, finding.hits) == (3, 3, 0)


def test_the_rate_is_taken_from_the_sample() -> None:
    """A search goes on to its sample, and counts every seed that hit."""
    finding = search(named("retry_before_visible_output"), sample=4)
    assert (finding.seeds, finding.runs, finding.hits) == (1, 4, 4)
    assert finding.as_json()["per_1000"] == 1000.0


def test_a_search_can_be_stopped() -> None:
    """False from the one who is told ends it after that seed."""
    finding = search(named("retry_before_visible_output"), sample=40, told=lambda runs: runs < 2)
    assert finding.runs == 2


def test_only_the_invariants_that_must_see_it_count() -> None:
    """Something else that breaks doesn't prove the protection."""
    other = attrs.evolve(named("retry_before_visible_output"), invariants=("I2",))
    assert not search(other, seeds_max=1).found


def test_a_log_that_no_step_could_write_is_a_breach() -> None:
    """A step's events that can't be folded break I9, instead of ending the simulation."""
    ablation = named("innocents_run_again")
    with ablation.off():
        violations = run_seed(ablation.sources[0], 1)
    assert any(one.rule == "I9" and "says what can't be" in one.sentence for one in violations)


def test_patched_puts_back_the_same_object() -> None:
    """What was patched is, afterwards, the very object that it was."""
    before = drain.decide
    with patched(drain, "decide", drain.events):
        assert vars(drain)["decide"] is drain.events
    assert drain.decide is before


# --- the command -------------------------------------------------------------------------------------


def test_the_command_prints_json() -> None:
    """`--json` is a list with the facts of each protection, and the status is 0 when all were found."""
    result = CliRunner().invoke(main, ["ablate", "retry_before_visible_output", "--sample", "1", "--json"])
    assert result.exit_code == 0
    (entry,) = json.loads(result.stdout)
    assert entry["protection"] == "a step is retried only before visible output"
    assert (entry["found"], entry["by"], entry["invariant"]) == (True, "cut_off_after_text", "I13")
    assert (entry["seeds"], entry["per_1000"], entry["control"]) == (1, 1000.0, [])
    assert "had shown text.started" in entry["sentence"]


def test_the_command_prints_lines() -> None:
    """Without it there is a line for each, its sentence below, and a sum."""
    result = CliRunner().invoke(main, ["ablate", "fence_by_expiry", "--sample", "1"])
    assert result.exit_code == 0
    head, sentence, total = result.stdout.splitlines()
    assert head.startswith("found  I3      1 seeds 1000.0/1000  fence_by_expiry: the fence compares")
    assert sentence.startswith("       slept_alone: a was suspended 31.0 s from")
    assert sentence.endswith(" after it had expired")
    assert total == "found 1 of 1 protections that were switched off"


def test_the_command_fails_if_one_is_not_found() -> None:
    """A protection that no world shows makes the status 1."""
    result = CliRunner().invoke(main, ["ablate", "lease_rule", "--generated", "--seeds", "1"])
    assert result.exit_code == 1
    assert result.stdout.startswith("MISSED -")


def test_a_wrong_name_is_refused_with_the_nearest() -> None:
    """There is no such protection: status 2, and the one that was probably meant."""
    result = CliRunner().invoke(main, ["ablate", "fence_by_expire"])
    assert result.exit_code == 2
    assert result.stderr == "there is no ablation 'fence_by_expire': did you mean \"fence_by_expiry\"?\n"
