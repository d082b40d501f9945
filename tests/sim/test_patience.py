"""Long commands draw a bar on a terminal, and Ctrl-C keeps what they found so far."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sim import fuzz, matrix, run
from sim.__main__ import main
from sim.explore import search as explore
from sim.patience import STOPPING, patience, stopped_by_ctrl_c

ROOT = Path(__file__).parents[2]
SCENARIO = str(ROOT / "scenarios" / "interrupted_step_started.toml")
FAIL_SAFE_S = 60


def test_the_first_ctrl_c_asks_and_the_second_ends() -> None:
    """Nothing is interrupted by the first; the second is an ordinary Ctrl-C again, and so it is outside."""
    before = signal.getsignal(signal.SIGINT)
    with stopped_by_ctrl_c() as stopped:
        assert not stopped()
        signal.raise_signal(signal.SIGINT)
        assert stopped()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_progress_is_refused_once_it_was_asked_for() -> None:
    """Until then there is always more to do."""
    with patience("something", 3) as waiting:
        assert waiting.told(1)
        waiting.begin("something else", None)
        assert waiting.told(1, 9)
        signal.raise_signal(signal.SIGINT)
        assert not waiting.told(2)


def at_call(number: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """`original`, during whose call of that number somebody presses Ctrl-C."""
    calls = 0

    def pressed(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments, **keywords)

    return pressed


@pytest.mark.parametrize(
    ("arguments", "module", "name", "kept"),
    [
        (["matrix", SCENARIO], matrix, "_cell", {"complete": False, "failures": 0, "gates": 64}),
        (
            ["explore", SCENARIO, "-d", "2"],
            explore,
            "check_invariants",
            {"end": "stopped early", "schedules": 3},
        ),
        (["fuzz"], fuzz, "check_invariants", {"complete": False, "seeds": 3, "violations": []}),
        (["fuzz", SCENARIO], fuzz, "check_invariants", {"complete": False, "seeds": 3, "violations": []}),
    ],
    ids=["matrix", "explore", "fuzz", "fuzz of a file"],
)
def test_what_was_found_is_printed_and_said_to_be_incomplete(
    arguments: list[str], module: Any, name: str, kept: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JSON is whole, holds what was done until then, and says that there was more to do."""
    monkeypatch.setattr(module, name, at_call(3, getattr(module, name)))
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert {key: facts[key] for key in kept} == kept


def test_an_ablation_that_was_stopped_is_not_called_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were found are listed; the one that was being looked for is neither found nor missed."""
    search: Any = importlib.import_module("sim.ablations.search")  # its package has a function of that name
    monkeypatch.setattr(search, "run_seed", at_call(4, search.run_seed))
    names = ["retry_before_visible_output", "lease_rule", "fence_by_expiry"]
    done = CliRunner().invoke(main, ["ablate", *names, "--sample", "1"])
    assert done.exit_code == 1
    assert "found  I13" in done.stdout
    assert "MISSED" not in done.stdout
    assert "fence_by_expiry" not in done.stdout
    monkeypatch.setattr(search, "run_seed", at_call(1, lambda source, seed: []))
    nothing = CliRunner().invoke(main, ["ablate", *names, "--json"])
    assert (nothing.exit_code, json.loads(nothing.stdout)) == (1, [])


def test_a_run_of_many_files_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that were played are told, and how many weren't."""
    monkeypatch.setattr(run, "check_invariants", at_call(2, run.check_invariants))
    done = CliRunner().invoke(main, ["run", SCENARIO, str(ROOT / "scenarios")])
    assert done.exit_code == 0
    last = done.stdout.splitlines()[-1]
    assert last.startswith("2 held, 0 broken, ")
    assert "stopped early: " in last


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["matrix", SCENARIO], b"interrupted_step_started"),
        (["explore", SCENARIO, "-d", "4"], b"interrupted_step_started"),
        (["fuzz"], b"fuzz"),
        (["fuzz", "--jobs", "2"], b"fuzz"),
        (["ablate"], b"fence_by"),
    ],
    ids=lambda value: " ".join(map(str, value))[:30] if isinstance(value, list) else None,
)
def test_ctrl_c_at_a_terminal(arguments: list[str], shown: bytes) -> None:
    """The bar is there, Ctrl-C reaches the command and its processes, and what is printed is still JSON."""
    ours, theirs = pty.openpty()
    command = subprocess.Popen(
        [sys.executable, "-m", "sim", *arguments, "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        seen = b""
        while shown not in seen:
            seen += os.read(ours, 4096)
        os.killpg(command.pid, signal.SIGINT)  # a terminal sends it to all of them
        while STOPPING.strip() not in seen:
            seen += os.read(ours, 4096)
        printed, _ = command.communicate(timeout=FAIL_SAFE_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGKILL)
        command.communicate()
        os.close(ours)
    found = json.loads(printed)
    assert command.returncode in (0, 1)
    assert isinstance(found, list) or found.get("complete") is False or found["end"] == "stopped early"
