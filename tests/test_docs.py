"""The documentation: its Python runs, its tables say what the code says, its links lead somewhere."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from engine.cli.commands import commands
from engine.limits import EngineConfig
from tests.pytest_runs import run_pytest

ROOT = Path(__file__).parent.parent
ENGINE_PAGE = ROOT / "docs" / "engine.md"
FAIL_SAFE_S = 120
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEST_FILE = re.compile(r"# (test_\w+\.py)\n")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def python_blocks(page: Path) -> list[tuple[int, str]]:
    """(line, source) of the Python in a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for block in FENCE.finditer(text):
        if block[1] in ("python", "py", "pycon"):
            found.append((text.count("\n", 0, block.start(2)), block[2]))
    return found


def run_page(page: Path, folder: Path) -> None:
    """Run a page's blocks, each going on from those before, in one process.

    A block that begins with `# test_….py` is a test file of its own, and every test in it has to pass.
    """
    program = [""] * page.read_text(encoding="utf-8").count("\n")
    for line, source in python_blocks(page):
        if TEST_FILE.match(source):
            assert run_pytest(folder, source) == {"passed": source.count("def test_")}
        else:
            code = source.splitlines()
            program[line : line + len(code)] = code  # at its place, so that a traceback names the page's line
    run_program("\n".join(program), folder / f"page_{page.stem}.py")


def run_program(source: str, file: Path) -> None:
    """Run a program in its own folder, with warnings as errors; it must end, and end well."""
    file.write_text(source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", file.name],
        cwd=file.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=FAIL_SAFE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_the_documentation_runs(page: Path, tmp_path: Path) -> None:
    """Every block of Python does what a reader who copies it would see, in a folder of its own."""
    run_page(page, tmp_path)


def test_blocks_are_found_and_run(tmp_path: Path) -> None:
    """The runner itself: blocks go on from one another, other languages are left out, failures surface."""
    page = tmp_path / "page.md"
    first, other, last = (
        "```python\na = 1\n```",
        "```\nnot python\n```",
        "```python\nopen('ran', 'x' * a).close()\n```",
    )
    page.write_text(f"{first}\n\n{other}\n{last}\n")
    run_page(page, tmp_path)
    assert (tmp_path / "ran").exists()
    page.write_text("text\n\n```python\nassert False\n```\n")
    with pytest.raises(AssertionError, match=r"page_page\.py\", line 4"):
        run_page(page, tmp_path)
    page.write_text("```python\n# test_wrong.py\ndef test_wrong():\n    assert False\n```\n")
    with pytest.raises(AssertionError, match="failed"):
        run_page(page, tmp_path)


def test_the_pages_hold_examples() -> None:
    """The first page and the engine's page show running code."""
    assert len(python_blocks(ROOT / "README.md")) >= 1
    assert len(python_blocks(ENGINE_PAGE)) >= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file that exists, every anchor a heading of its page."""
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}"


def anchors(page: Path) -> list[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


# --- tables ------------------------------------------------------------------------------------------


def table(heading: str) -> list[list[str]]:
    """The rows of the engine page's table that begins with `heading`, without back-quotes."""
    text = ENGINE_PAGE.read_text(encoding="utf-8")
    lines = text[text.index(f"| {heading} |") :].splitlines()[2:]
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines)
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows]


def unit(name: str) -> str:
    """The unit that a field's name ends with."""
    words = name.removesuffix("_max").split("_")
    return words[-1] if words[-1] in ("ms", "bytes", "ppm", "percent") else "count"


def test_every_bound_is_documented() -> None:
    """The table names every field of `EngineConfig` in its order, with its unit and its default."""
    fields = [
        [each.name, "word" if isinstance(each.default, str) else unit(each.name), str(each.default)]
        for each in attrs.fields(EngineConfig)
    ]
    rows = table("field")
    assert [row[:3] for row in rows] == fields
    assert all(row[3] for row in rows)


def test_every_logger_is_documented() -> None:
    """The table of loggers names those that the engine's modules use, and no other."""
    used = {
        name
        for file in sorted((ROOT / "engine").rglob("*.py"))
        for name in re.findall(r'getLogger\("([^"]+)"\)', file.read_text(encoding="utf-8"))
    }
    assert [row[0] for row in table("logger")] == sorted(used)


def test_every_command_is_documented() -> None:
    """The page names each command of `python -m engine`, and none that doesn't exist."""
    named = re.findall(r"`python -m engine (\w+)", ENGINE_PAGE.read_text(encoding="utf-8"))
    assert sorted(set(named)) == sorted(commands.commands)
