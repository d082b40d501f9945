"""`status`: nodes seen, claims with the rest of their leases, pending input, quarantine."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
import trio

from engine import events as ev
from engine.cli import CLEAN
from engine.cli.status import read_status
from engine.records import InputRow, Phase
from engine.store import SqliteTransaction, open_readonly
from tests.engine.command_samples import NASTY, Run, put, run_with, state_of, tamper, write_file
from tests.engine.log_samples import SES, claim, good, recovery, running
from tests.engine.real import Model, engine_on

FAR = 10**15


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs one command in this process."""
    return run_with(capfd)


def _input(session_id: str, name: str, parked: bool) -> InputRow:
    return InputRow(
        input_id=f"inp_{name}",
        session_id=session_id,
        kind="user",
        delivery="steer",
        payload={},
        admitted_seq=0,
        state="pending",
        parked=parked,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Sessions in every state: one claimed in each way, one with input, one in quarantine, a tombstone."""
    path = write_file(tmp_path / "busy.db", running().events)

    def fill(tx: SqliteTransaction) -> None:
        row = tx.session(SES)
        assert row is not None
        tx.put_claim(claim(expires_at=FAR, phase=Phase.READY, interrupt_seq=2))
        for name in ("expired", "handed", "given", "input", "quarantine", "buried"):
            title = NASTY if name == "input" else name
            tx.put_session(attrs.evolve(row, session_id=name, title=title, deleted=name == "buried"))
        tx.put_claim(claim(session_id="expired", owner_id="own_2", expires_at=2))
        tx.put_claim(claim(session_id="handed", owner_id="own_2", expires_at=0))
        tx.put_claim(claim(session_id="given", owner_id="own_2", expires_at=1))
        tx.put_input(_input("input", "a", parked=True))
        tx.put_input(_input("input", "b", parked=False))
        tx.put_recovery(attrs.evolve(recovery(NASTY), session_id="quarantine", takeovers=3))

    put(path, fill)
    return path


def test_status_tells_all(run: Run, file: Path, tmp_path: Path) -> None:
    """Nodes, claims, input and quarantines each have a table under one line of counts; nothing is changed."""
    before = state_of(tmp_path)
    code, out, err = run("status", file)
    assert (code, err) == (CLEAN, "")
    first, nodes, claims, inputs, quarantine = [part.splitlines() for part in out.split("\n\n")]
    assert first == [
        f"{file}: 6 sessions and 1 deleted, 2 nodes seen, 4 claims, 2 pending inputs (1 parked),"
        " 1 in quarantine"
    ]
    assert nodes[1:] == ["own_1\t1\t0\t1\t1970-01-01 00:00:01.002Z", "own_2\t0\t3\t0\t-"]
    cells = {line.split("\t")[0]: line.split("\t")[1:] for line in claims[1:]}
    assert list(cells) == ["expired", "given", "handed", SES]
    assert cells["given"] == ["continue", "given up", "-", "1", "own_2"]
    assert cells["handed"] == ["continue", "handed over", "-", "1", "own_2"]
    assert cells[SES][0] == "ready"
    assert cells[SES][2:] == ["asked", "1", "own_1"]
    assert cells[SES][1].endswith(" s")
    assert cells["expired"][1].startswith("expired ")
    assert cells["expired"][1].endswith(" s ago")
    assert inputs[1:] == ["input\t2\t1\ta\\x1b]0;owned\\x07b\\x9b2Jc\\u202ed\\u2028e\\x7ff"]
    assert quarantine[1:] == ["quarantine\t3\ta\\x1b]0;owned\\x07b\\x9b2Jc\\u202ed\\u2028e\\x7ff"]
    assert state_of(tmp_path) == before


def test_status_json_has_its_keys(run: Run, file: Path) -> None:
    """The JSON is one object with the promised keys, and the lease's rest fits its own `now_ms`."""
    code, out, _ = run("status", file, "--json")
    said = json.loads(out)
    assert code == CLEAN
    assert not set(out) & set("\x1b\x07\x9b\u202e\u2028\x7f")
    now = said.pop("now_ms")
    claims = {each["session_id"]: each for each in said.pop("claims")}
    assert {name: each["state"] for name, each in claims.items()} == {
        SES: "live",
        "expired": "expired",
        "handed": "handed_over",
        "given": "given_up",
    }
    assert claims[SES]["remaining_ms"] == FAR - now
    assert claims["expired"]["remaining_ms"] == 2 - now
    assert claims["handed"]["remaining_ms"] is claims["given"]["remaining_ms"] is None
    assert (claims[SES]["phase"], claims[SES]["owner_id"]) == ("ready", "own_1")
    assert said == {
        "file": str(file),
        "sessions": 6,
        "deleted": 1,
        "nodes": [
            {"owner_id": "own_1", "live": 1, "expired": 0, "latest": 1, "started_at": 1002},
            {"owner_id": "own_2", "live": 0, "expired": 3, "latest": 0, "started_at": 0},
        ],
        "pending": [{"session_id": "input", "pending": 2, "parked": 1}],
        "quarantine": [attrs.asdict(attrs.evolve(recovery(NASTY), session_id="quarantine", takeovers=3))],
    }


def test_status_of_a_quiet_file_is_short(run: Run, tmp_path: Path) -> None:
    """Tables without rows aren't printed."""
    path = write_file(tmp_path / "quiet.db", running().events[:1])
    assert run("status", path) == (
        CLEAN,
        f"{path}: 1 session, 0 nodes seen, 0 claims, 0 pending inputs (0 parked), 0 in quarantine\n",
        "",
    )


@pytest.mark.parametrize("expires_at", [0, 1, 99, 100, 101])
def test_a_claim_is_live_until_its_time(tmp_path: Path, expires_at: int) -> None:
    """At `now_ms` itself a lease is over, just as for a node that wants to take it over."""
    path = write_file(tmp_path / "edge.db", running().events)
    put(path, lambda tx: tx.put_claim(claim(expires_at=expires_at)))
    with open_readonly(path) as store:
        found = store.read(lambda tx: read_status(tx, 100))
    assert [(node.live, node.expired) for node in found.nodes] == [
        (1, 0) if expires_at == 101 else (0, 1),
    ]


def test_status_reads_past_damage(run: Run, tmp_path: Path) -> None:
    """An execution whose start can't be read shows no node, and the rest is told."""
    path = write_file(tmp_path / "damaged.db", good().events)
    tamper(path, f"UPDATE event SET data = x'7bff' WHERE type = '{ev.ExecutionStarted.type}'")
    code, out, _ = run("status", path)
    assert code == CLEAN
    assert ": 1 session, 0 nodes seen, 0 claims, 1 pending input (1 parked), 0 in quarantine\n" in out


@pytest.mark.trio
async def test_status_beside_a_node_at_work(run: Run, tmp_path: Path) -> None:
    """A claim that is held right now is live, its lease runs, and its owner is the node."""
    path, model = tmp_path / "live.db", Model(held=True)
    async with engine_on(path, model) as engine:
        session = await engine.create_session()
        await session.send("hello")
        await model.wait_asked()
        _, out, _ = await trio.to_thread.run_sync(run, "status", path, "--json")
        said = json.loads(out)
        (row,) = said["claims"]
        assert (row["session_id"], row["phase"], row["state"]) == (session.id, "unknown", "live")
        assert 0 < row["remaining_ms"] <= engine.node.config.lease_ms
        assert [each["owner_id"] for each in said["nodes"]] == [engine.node.owner_id]
        model.open_door()
        await engine.wait_idle()
