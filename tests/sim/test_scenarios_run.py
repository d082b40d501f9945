"""Every scenario file holds, from whichever tape; and a run says what is wrong when one doesn't."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import attrs
import pytest

from sim.run import run_scenario
from sim.scenario import ExpectRequests, Scenario, load_scenario
from sim.scenario.read import parse_scenario
from sim.tape import Tape

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "scenarios").glob("*.toml"))
SEEDS = (1, 2, 3)
DETERMINISM = (
    "interrupted_step_started",
    "power_cuts_one_after_another",
    "take_over_tool_called",
    "interrupts_at_once",
)
DIGEST_OF = """
import sys
from sim.run import run_scenario
from sim.scenario import load_scenario
from sim.tape import Tape
print(run_scenario(load_scenario(sys.argv[1]), lambda: Tape.seeded(7)).digest)
"""


def scenario_named(name: str) -> Scenario:
    return load_scenario(ROOT / "scenarios" / f"{name}.toml")


def digest(name: str, seed: int = 7) -> str:
    return run_scenario(scenario_named(name), partial(Tape.seeded, seed)).digest


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_scenario_holds(file: Path) -> None:
    """A scenario of ours holds when first in is first out, twice over with one digest, and so from seeds."""
    scenario = load_scenario(file)
    results = [run_scenario(scenario, check_determinism=True)]
    results += [run_scenario(scenario, partial(Tape.seeded, seed)) for seed in SEEDS]
    assert [str(violation) for result in results for violation in result.violations] == []


def test_false_expectation_breaks_the_scenario() -> None:
    """A claim that is in another phase than expected is named, with its moment as every clock showed it."""
    text = (ROOT / "scenarios" / "interrupted_step_started.toml").read_text()
    false = text.replace('phase = "unknown"', 'phase = "safe"')
    assert false != text
    false += '\n[[nodes]]\nname = "b"\nclock = { offset_ms = 1500 }\n'
    scenario, problems = parse_scenario(false, "false.toml")
    assert problems == []
    assert scenario is not None
    result = run_scenario(scenario)
    assert result.verdict == "broken"
    (violation,) = result.violations
    assert violation.rule == "expect"
    assert "the claim's phase is unknown, not safe" in violation.sentence
    assert violation.true_ms == 0.0
    assert violation.clocks == {"a": 0, "b": 1500}
    line = false[: false.index('phase = "safe"')].count("\n")
    assert violation.line in (line - 2, line - 1, line), "the table of the expectation is named"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("events", {"count": 2}),
        ("order", {"ends_with": ("step.ended",), "types": None, "contains": None}),
        ("answer", {"is_": "not_running", "one_of": None}),
        ("requests", {"count": 7}),
        ("tool", {"starts": 5}),
        ("refused", {"count": 9, "at_least": None, "at_most": None}),
        ("status", {"is_": "quarantined"}),
        ("takeovers", {"count": 9, "at_least": None, "at_most": None}),
        ("config_refused", {"config_refused": "no such words"}),
        ("claim", {"exists": True}),
    ],
)
def test_each_kind_of_expectation_can_fail(name: str, change: dict[str, object]) -> None:
    """Whichever expectation of our files is made false, its scenario breaks with just that violation."""
    for file in FILES:
        scenario = load_scenario(file)
        for nth, expect in enumerate(scenario.expect):
            fits = expect.leads == name and (name != "claim" or (expect.at == "end" and not expect.exists))  # type: ignore[union-attr]
            if fits:
                wrong = attrs.evolve(expect, **change)
                others = scenario.expect[:nth] + scenario.expect[nth + 1 :]
                result = run_scenario(attrs.evolve(scenario, expect=(*others, wrong)))
                assert [violation.rule for violation in result.violations] == ["expect"]
                assert result.violations[0].line == wrong.line
                return
    pytest.fail(f"no scenario expects anything of {name}")


def test_unmet_trigger_breaks_the_scenario() -> None:
    """An action whose moment never comes is named: a scenario that doesn't happen proves nothing."""
    scenario = scenario_named("interrupt_tool_called_notify")
    silent = attrs.evolve(
        scenario,
        sessions=(attrs.evolve(scenario.sessions[0], replies=scenario.sessions[0].replies[1:]),),
        expect=tuple(one for one in scenario.expect if isinstance(one, ExpectRequests)),
    )
    sentences = [violation.sentence for violation in run_scenario(silent).violations]
    assert sentences == ["stop never happened: the moment it waits for never came"]
    assert run_scenario(attrs.evolve(silent, expect=())).violations == [], "a generated world may miss"


@pytest.mark.parametrize("name", DETERMINISM)
def test_digest_in_one_process(name: str) -> None:
    """One tape gives one digest in one process, and other tapes give others."""
    assert digest(name) == digest(name)
    assert len({digest(name, seed) for seed in range(3)}) > 1


@pytest.mark.parametrize("name", DETERMINISM)
def test_digest_in_fresh_processes(name: str) -> None:
    """One tape gives one digest in fresh processes, whatever the order of their hashes is."""
    found = {seed: _digest_elsewhere(name, seed) for seed in ("0", "1", "5", "random")}
    assert found == dict.fromkeys(found, digest(name))


def _digest_elsewhere(name: str, hash_seed: str) -> str:
    file = ROOT / "scenarios" / f"{name}.toml"
    done = subprocess.run(
        [sys.executable, "-c", DIGEST_OF, str(file)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
