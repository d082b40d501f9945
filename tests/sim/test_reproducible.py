"""One tape gives one run, and what breaks that is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.tape import Tape
from sim.trace import explain, first_difference
from tests.sim.storm import Storm

ROOT = Path(__file__).parents[2]


# --- reproducibility ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 20, 100])
@pytest.mark.parametrize("tape", ["fifo", "1", "2"])
def test_one_tape_gives_one_run(size, tape):
    """Runs of one tape in one process have equal digests, however many tasks there are."""

    def make():
        return Tape.fifo() if tape == "fifo" else Tape.seeded(tape)

    first = Storm(make(), size=size).run()
    for _ in range(4):
        again = Storm(make(), size=size).run()
        assert again.shared == first.shared
        assert again.trace.digest() == first.trace.digest(), explain(
            first_difference(first.trace.entries, again.trace.entries)
        )


def test_one_tape_gives_one_run_in_every_process():
    """Fresh processes under any hash seed give the digest that this process gives."""
    expected = Storm(Tape.seeded(5), size=12).run().trace.digest()
    for hash_seed in ("0", "1", "5", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.sim.storm", "5", "12"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


def test_seeds_give_different_runs():
    """The tape really decides: twenty seeds give twenty runs."""
    assert len({Storm(Tape.seeded(seed)).run().trace.digest() for seed in range(20)}) == 20


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 8))
def test_recorded_runs_replay(seed, size):
    """A run is repeated exactly by its recorded draws."""
    original = Storm(Tape.seeded(seed), size=size).run()
    replayed = Storm(Tape.from_json(original.kernel.tape.to_json()), size=size).run()
    assert replayed.trace.digest() == original.trace.digest()
    assert replayed.kernel.tape.draws == original.kernel.tape.draws


def test_keeping_no_entries_changes_nothing():
    """The digest is the same when the trace keeps only that."""
    kept, unkept = Storm(Tape.seeded(3)).run(), Storm(Tape.seeded(3), keep=False).run()
    assert kept.trace.digest() == unkept.trace.digest()


def test_a_planted_set_order_is_named():
    """Code whose result follows hash order gives another digest, and the first such entry is found."""
    script = (
        "from tests.sim.storm import Storm\n"
        "from sim.tape import Tape\n"
        "for entry in Storm(Tape.fifo(), size=8, flaw='set order').run().trace.entries: print(entry)\n"
    )
    runs = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        runs.append(done.stdout.splitlines())
    different = [left for left, right in zip(*runs, strict=True) if left != right]
    assert "collected items" in different[0]


def test_a_planted_ungated_append_is_noticed():
    """Touching shared state before a gate makes runs of one tape differ."""
    results = {
        tuple(map(str, Storm(Tape.fifo(), flaw="shared without a gate").run().shared)) for _ in range(30)
    }
    assert len(results) > 1
