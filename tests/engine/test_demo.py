"""The demonstration plays to its end, shows what it says, and leaves a clean file or none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from engine import demo
from engine.cli import BAD_INPUT, CLEAN, main
from engine.cli.reading import verify_file
from engine.store import open_readonly
from engine.system import real_system


async def played(path: Path) -> str:
    said: list[str] = []
    with trio.fail_after(30):
        await demo.play(os.fspath(path), said.append, real_system(), pace=0)
    return "".join(said)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the demonstration prints when nothing pauses."""
    return trio.run(played, tmp_path_factory.mktemp("demo") / "demo.db")


def test_it_shows_a_turn_with_a_tool(text: str) -> None:
    """The first part shows the events in order, the tool's call and result, and how the turn ended."""
    first = text.split("\n2. ")[0]
    seqs = [int(line.split()[0]) for line in first.splitlines() if line[:6].strip().isdigit()]
    assert seqs == list(range(17))
    assert 'tool.called            tide {"harbour": "Brest"}' in first
    assert '{"harbour": "Brest", "high_water": "14:32", "height_m": 6.1}' in first
    assert first.rstrip().endswith("=> session.run(…) returned: succeeded")


def test_it_shows_text_as_it_arrives(text: str) -> None:
    """What is live comes before the event that stores it as a whole, and both say the same."""
    assert f"> {demo.STORY}\n" in text
    assert text.index(f"> {demo.STORY}") < text.index(f'"{demo.STORY}" (truncated)')


def test_it_shows_an_interrupt_that_settles(text: str) -> None:
    """The second part is cut in mid-sentence, closed, and answered `settled`."""
    second = text.split("\n2. ")[1].split("\n3. ")[0]
    assert "step.interrupted       cause: user" in second
    assert second.rstrip().endswith("=> session.interrupt() answered: settled")


def test_its_file_is_clean(text: str) -> None:
    """The last part verifies the file that was just written."""
    third = text.split("\n3. ")[1]
    assert "=> 1 session, 25 events, checked I1, I4, I5, I6, I7, I8, I10, I11, I13: clean\n" in third


def test_headings_and_lines_are_short(text: str) -> None:
    """It fits a usual window, and has three headed parts."""
    assert [line[:2] for line in text.splitlines() if line[:1].isdigit()] == ["1.", "2.", "3."]
    assert max(map(len, text.splitlines())) <= 160


def test_keeping_the_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--keep` leaves a clean database for the other commands; a file that exists is refused as it is."""
    monkeypatch.setattr(demo, "EVERY_MS", 0)
    monkeypatch.setattr(demo, "TOOL_S", 0)
    path = tmp_path / "kept.db"
    assert main(["demo", "--keep", str(path)]) == CLEAN
    assert f"python -m engine verify {path}\n" in capfd.readouterr().out
    assert main(["verify", str(path)]) == CLEAN
    before = path.read_bytes()
    assert main(["demo", "--keep", str(path)]) == BAD_INPUT
    assert capfd.readouterr().err == f"Error: {path} exists already; the demonstration wants a fresh file\n"
    assert path.read_bytes() == before


def test_it_leaves_nothing_behind(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `--keep` its folder is gone when it ends."""
    monkeypatch.setattr(demo, "EVERY_MS", 0)
    monkeypatch.setattr(demo, "TOOL_S", 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["demo"]) == CLEAN
    assert list(tmp_path.iterdir()) == []
    assert "answered: settled" in capfd.readouterr().out


def test_a_reader_that_leaves_is_no_error() -> None:
    """When its output is closed the engine still closes in order, and nothing is said on stderr."""
    theirs, ours = os.pipe()
    os.close(theirs)
    code = (
        "import sys; from engine import demo; from engine.cli import main;"
        "demo.EVERY_MS = demo.TOOL_S = 0; sys.exit(main(['demo']))"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=ours, stderr=subprocess.PIPE, check=False)
    os.close(ours)
    assert (done.returncode, done.stderr) == (141, b"")


class Leaving:
    """An output whose reader leaves after some writes."""

    def __init__(self, writes: int) -> None:
        self.left = writes

    def write(self, text: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise BrokenPipeError

    def flush(self) -> None:
        pass


def test_a_reader_that_leaves_half_way_gets_no_half_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is played to its end all the same, and only then the closed output is told."""
    monkeypatch.setattr(demo, "EVERY_MS", 0)
    monkeypatch.setattr(demo, "TOOL_S", 0)
    path = os.fspath(tmp_path / "kept.db")
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", Leaving(12))
        with pytest.raises(BrokenPipeError):
            demo.run(path)
    with open_readonly(path) as store:
        report = verify_file(store, path)
    assert (report.ok, report.events) == (True, 25)
