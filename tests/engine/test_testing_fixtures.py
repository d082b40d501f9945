"""The fixtures, in small test suites of users that opted in."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.pytest_runs import run_pytest

OPTED_IN = """
    import pytest
    from engine import Tool
    from engine.providers.script import says
    from engine.providers.scripted import ScriptedProvider

    pytest_plugins = ["engine.testing.fixtures"]

    @pytest.fixture
    def fencepost_provider(fencepost_world):
        return ScriptedProvider(fencepost_world.clock, [says("overridden")])
"""


def outcomes(folder: Path, source: str, *options: str) -> dict[str, int]:
    """What comes of tests that opted in."""
    return run_pytest(folder, textwrap.dedent(OPTED_IN) + textwrap.dedent(source), *options)


def test_fixtures_serve_plain_tests(tmp_path: Path) -> None:
    """A plain test hands `fencepost_run` an async function, gets its value, and a broken log fails it."""
    source = """
        async def greet(engine):
            return (await (await engine.create_session()).run("hello")).text

        def test_greets(fencepost_run, fencepost_world):
            assert fencepost_run(greet) == "overridden"
            assert list(fencepost_world.database.read(lambda tx: tx.sessions("", 10)))

        def test_breaks(fencepost_run, fencepost_world):
            async def main(engine):
                await greet(engine)
                fencepost_world.database.connection.execute("DELETE FROM event WHERE seq = 3")

            with pytest.raises(AssertionError, match="not sound"):
                fencepost_run(main)
    """
    assert outcomes(tmp_path, source) == {"passed": 2}
    assert outcomes(tmp_path, source, "-p", "no:trio") == {"passed": 2}


def test_fixtures_serve_pytest_trio(tmp_path: Path) -> None:
    """An async test takes the engine itself; without a virtual clock it is told what is missing."""
    source = """
        import trio

        @pytest.mark.trio
        async def test_greets(fencepost_engine, autojump_clock):
            session = await fencepost_engine.create_session()
            await trio.sleep(500)
            assert (await session.run("hello")).text == "overridden"

        @pytest.mark.trio
        async def test_lacks_the_clock(fencepost_engine):
            pass
    """
    assert outcomes(tmp_path, source) == {"passed": 1, "failed": 1}


def test_the_engine_needs_no_pytest() -> None:
    """Where pytest can't be imported, `engine.testing` can; only the fixtures need it."""
    code = """
import sys
sys.modules["pytest"] = sys.modules["_pytest"] = None
import engine.service, engine.testing
try:
    import engine.testing.fixtures
except ImportError:
    sys.exit(42)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 42
