"""Runs a test suite of a user's in a process of its own.

Pytest's own `pytester` would take modules out of this process that other tests hold on to.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
FAIL_SAFE_S = 120


def run_pytest(folder: Path, source: str, *options: str) -> dict[str, int]:
    """The outcomes of one file of tests, as counts: `{"passed": 2, "failed": 1}`."""
    (folder / "test_user.py").write_text(textwrap.dedent(source), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir=.", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "test_user.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=FAIL_SAFE_S,
        check=False,
    )
    summary = done.stdout.splitlines()[-1] if done.stdout else done.stderr
    return {name: int(count) for count, name in re.findall(r"(\d+) (passed|failed|errors?|skipped)", summary)}
