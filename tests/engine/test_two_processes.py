"""Several processes on one file: one is stopped past its lease and loses its session; many start at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import attrs
import pytest
import trio

from engine.events import ExecutionStarted
from tests.engine.node_process import TURNS
from tests.engine.real import FAIL_SAFE_S, assert_clean, open_log, stored_in

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a new database may go."""
    return tmp_path / "shared.db"


@attrs.define
class NodeProcess:
    """A process that runs `node_process`; `told` is what it told so far."""

    process: trio.Process
    told: list[dict[str, Any]] = attrs.field(factory=list)
    _rest: bytes = b""

    @classmethod
    async def start(cls, role: str, path: Path) -> NodeProcess:
        command = [sys.executable, "-m", "tests.engine.node_process", role, str(path)]
        process = await trio.lowlevel.open_process(
            command, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        return cls(process)

    async def hear(self) -> dict[str, Any] | None:
        """The next thing it tells; None once it is silent for good."""
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            got = await self.process.stdout.receive_some()
            if not got:
                return None
            self._rest += got
        line, self._rest = self._rest.split(b"\n", 1)
        self.told.append(json.loads(line))
        return self.told[-1]

    async def finish(self) -> int:
        """Hear it out; its exit status."""
        while await self.hear():
            pass
        return await self.process.wait()

    async def stop(self, path: Path) -> None:
        """Stop it as Ctrl-Z would, while it doesn't hold the write lock."""
        while True:
            self.process.send_signal(signal.SIGSTOP)
            while "T (stopped)" not in Path(f"/proc/{self.process.pid}/status").read_text():
                await trio.lowlevel.checkpoint()
            if _can_be_locked(path):
                return
            self.go_on()

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def end(self) -> None:
        """Leave no process and no pipe behind, whatever happened."""
        with trio.CancelScope(shield=True):
            if self.process.returncode is None:
                self.process.kill()
            await self.process.wait()
            assert self.process.stdout is not None
            await self.process.stdout.aclose()


def _can_be_locked(path: Path) -> bool:
    probe = apsw.Connection(str(path))
    try:
        probe.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        return False
    finally:
        probe.close()
    return True


async def _verify(path: Path) -> dict[str, Any]:
    """What `python -m engine verify --json` reports; it must be clean."""
    done = await trio.run_process(
        [sys.executable, "-m", "engine", "verify", str(path), "--json"],
        capture_stdout=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.trio
async def test_stopped_past_its_lease(path: Path) -> None:
    """A process that is stopped in mid-answer loses its session to another one, which finishes the turn; when
    it goes on, its execution ends as lost and nothing of it is written."""
    with trio.fail_after(FAIL_SAFE_S):
        slow = await NodeProcess.start("slow", path)
        try:
            assert await slow.hear() == {"what": "speaking"}
            await slow.stop(path)
            heir = await NodeProcess.start("heir", path)
            try:
                assert await heir.finish() == 0
            finally:
                await heir.end()
            assert heir.told == [{"what": "result", "how": "succeeded", "text": "finished by the heir"}]
            before = await _log_of(path)
            slow.go_on()
            assert await slow.hear() == {"what": "ended", "how": "Lost"}
            assert await slow.finish() == 0
        finally:
            await slow.end()
        assert await _log_of(path) == before
        started = [item for item in before if isinstance(item.event, ExecutionStarted)]
        assert len(started) == 2
        assert started[1].event.previous_execution_id == started[0].execution_id
        assert started[1].event.generation == 2
        writers = [item.execution_id for item in before if item.execution_id is not None]
        taken = writers.index(started[1].execution_id)
        assert set(writers[:taken]) == {started[0].execution_id}
        assert set(writers[taken:]) == {started[1].execution_id}
        await assert_clean(path)
        report = await _verify(path)
        assert (report["sessions"], report["breaches"], report["pending"]) == (1, [], [])


async def _log_of(path: Path) -> list[Any]:
    async with open_log(path) as log:
        return await stored_in(log, "ses_a")


@pytest.mark.trio
async def test_many_processes_start_at_once(path: Path) -> None:
    """Four processes that make and use one new file together finish every turn, and none of them fails."""
    nodes: list[NodeProcess] = []
    exits: list[int] = []

    async def run(node: NodeProcess) -> None:
        exits.append(await node.finish())

    with trio.fail_after(FAIL_SAFE_S):
        try:
            for _ in range(4):
                nodes.append(await NodeProcess.start("busy", path))
            async with trio.open_nursery() as nursery:
                for node in nodes:
                    nursery.start_soon(run, node)
        finally:
            for node in nodes:
                await node.end()
        assert exits == [0] * 4
        for node in nodes:
            assert node.told == [{"what": "turn", "how": "succeeded", "text": "four"}] * TURNS
        await assert_clean(path)
        report = await _verify(path)
        assert (report["sessions"], report["breaches"], report["damage"]) == (4, [], [])
