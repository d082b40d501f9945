"""Runs a scenario a second time where hash order is another, and names the first entry that differs.

Within one process a set of text keeps its order from run to run, so code that follows it looks deterministic
there. A fresh process with another `PYTHONHASHSEED` shows it. `python -m sim.determinism [PROJECT]` is that
process.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from sim.project import MakeProject, Project, find_project
from sim.saved import tape_of
from sim.scenario import Scenario, load_scenario
from sim.tape import Tape
from sim.trace import Entry, canonical, explain, first_difference
from sim.verdict import Violation
from sim.world import World

_LENGTH_BYTES = 8


class OtherProcess:
    """A process under another hash seed, which runs scenario files on demand. Made by `other_process`."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    def differs(
        self, scenario: Scenario, entries: Sequence[Entry], seed: int | None = None
    ) -> list[Violation]:
        """A violation that names the first entry in which the run over there isn't the one of `entries`.

        `seed` fills the tape; None is the file's own tape. The scenario must have come from a file.
        """
        assert scenario.file, "only a scenario that came from a file can be run elsewhere"
        there = self._run(scenario.file, seed)
        difference = first_difference(entries, there)
        if difference is None:
            return []
        sentence = f"a run in a fresh process under another PYTHONHASHSEED differs: {explain(difference)}"
        return [Violation(rule="determinism", sentence=sentence)]

    def _run(self, file: str, seed: int | None) -> list[Entry]:
        to, back = self._child.stdin, self._child.stdout
        assert to is not None
        assert back is not None
        to.write(json.dumps([file, seed]).encode() + b"\n")
        to.flush()
        length = back.read(_LENGTH_BYTES)
        if len(length) < _LENGTH_BYTES:
            raise RuntimeError(f"the process that was to run {file} again has ended; it says why above")
        data = back.read(int.from_bytes(length, "big"))
        return msgspec.msgpack.decode(data, type=list[Entry])


@contextlib.contextmanager
def other_process(project: str | None = None) -> Iterator[OtherProcess]:
    """A process whose hash order isn't this one's; it ends with the block. `project` names the function,
    `module:function`, that makes what a project of the user's own brings to each run."""
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    command = [sys.executable, "-m", "sim.determinism", *([] if project is None else [project])]
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path.rstrip(os.pathsep)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            yield OtherProcess(child)
        finally:
            child.kill()


def serve(requests: IO[bytes], answers: IO[bytes], project: MakeProject = Project) -> None:
    """Answer each line, `[file, seed]`, with the trace of that run: its length, then its entries."""
    for line in requests:
        file, seed = json.loads(line)
        scenario = load_scenario(Path(file))
        tape = tape_of(scenario) if seed is None else Tape.seeded(seed)
        run = World(scenario, tape, project=project()).run()
        run.close()
        plain = [canonical(msgspec.structs.astuple(entry)) for entry in run.trace.entries]
        data = msgspec.msgpack.encode(plain)
        answers.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
        answers.flush()


if __name__ == "__main__":
    # What a project prints must not stand among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers, find_project(sys.argv[1] if len(sys.argv) > 1 else None))
