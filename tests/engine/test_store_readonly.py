"""Looking into a database from outside, beside its nodes or after them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from engine.errors import StoreError, StoreFileError, StoreReadOnly
from engine.store import SqliteTransaction, open_readonly
from tests.contracts.store_cases import event_row, seqs
from tests.engine.store_files import append_events, folder_state, open_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a new database may go."""
    return tmp_path / "store.db"


def test_readonly_leaves_the_folder_as_it_was(path: Path) -> None:
    """With nobody else at the file, a look at it changes no byte and no name."""
    connection = open_file(path)
    append_events(connection, 0, 1)
    connection.close()
    before = folder_state(path.parent)
    with open_readonly(path) as store:
        assert store.read(seqs()) == [0, 1]
        assert store.damage() == []
    after = folder_state(path.parent)
    assert (after[path.name], after[""][0]) == (before[path.name], before[""][0])


def test_readonly_leaves_a_crashed_wal(path: Path) -> None:
    """What a crashed process left beside the file is read, and still there afterwards, byte for byte."""
    script = (
        "import os, sys\n"
        "from engine.store import SqliteTransaction, open_connection\n"
        "from tests.contracts.store_cases import event_row\n"
        "c = open_connection(sys.argv[1], sleep=None, timeout_ms=0)\n"
        "c.execute('BEGIN IMMEDIATE')\n"
        "SqliteTransaction(c, now_ms=0).append_event(event_row(seq=0))\n"
        "c.execute('COMMIT')\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    wal = path.with_name(f"{path.name}-wal")
    before = (path.read_bytes(), wal.read_bytes(), sorted(os.listdir(path.parent)))
    with open_readonly(path) as store:
        assert store.read(seqs()) == [0]
    assert (path.read_bytes(), wal.read_bytes(), sorted(os.listdir(path.parent))) == before


def test_readonly_beside_a_writer(path: Path) -> None:
    """It sees what is committed meanwhile, not what isn't, and can't write."""
    writer = open_file(path)
    with open_readonly(path) as store:
        assert not store.changed()
        append_events(writer, 0)
        assert (store.changed(), store.changed()) == (True, False)
        writer.execute("BEGIN IMMEDIATE")
        SqliteTransaction(writer, now_ms=0).append_event(event_row(seq=1))
        assert store.read(seqs()) == [0]
        writer.execute("COMMIT")
        assert store.read(seqs()) == [0, 1]
        kept: list[Any] = []
        store.read(kept.append)
        with pytest.raises(StoreError):
            kept[0].latest_seq("ses_a")
        with pytest.raises(StoreReadOnly):
            store.read(lambda reader: cast(SqliteTransaction, reader)._run("delete_claim", ("ses_a",)))
    writer.close()


def test_readonly_where_nothing_can_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that this user can't write is read, too; a WAL that can't be recovered is named."""
    connection = open_file(path)
    append_events(connection, 0)
    connection.close()
    monkeypatch.setattr(os, "access", lambda *args: False)
    before = folder_state(path.parent)
    with open_readonly(path) as store:
        assert store.read(seqs()) == [0]
    assert folder_state(path.parent) == before
    path.with_name(f"{path.name}-wal").write_bytes(b"x")
    with pytest.raises(StoreFileError, match="WAL that must be recovered"):
        open_readonly(path)


def test_damage_is_found(path: Path) -> None:
    """A page that was overwritten is reported, not raised."""
    connection = open_file(path)
    append_events(connection, *range(200))
    connection.close()
    content = bytearray(path.read_bytes())
    content[-8192:] = b"\x55" * 8192
    path.write_bytes(content)
    with open_readonly(path) as store:
        assert store.damage()
