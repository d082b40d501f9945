"""A project of the user's own takes part in each command that runs worlds, by the name of its function."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim.__main__ import main

PROJECT = '''
"""A project that forbids a session to be answered twice, which happens as soon as it is asked twice."""

import contextlib

from engine.ports import Finish, TextChunk, TextEnd, TextStart
from sim.project import Project
from sim.verdict import Violation


class Model:
    def __init__(self, system):
        self.clock = system.clock

    @contextlib.asynccontextmanager
    async def open(self, request):
        yield self.answer()

    async def answer(self):
        yield TextStart()
        yield TextChunk(text="the project's answer")
        yield TextEnd()
        yield Finish()


def asked(record):
    for opened in record.run.ledger.opened[1:]:
        yield Violation(rule="once", sentence="it was asked twice", session=opened.session_id)


def once():
    return Project(provider=Model, checks=[asked])


def nothing():
    return "nothing"


def broken():
    raise LookupError("no seat is left")


not_a_function = 3
'''

WORLD = """
proves = "A session is asked once."
name = "twice"
[[nodes]]
name = "a"
[[nodes]]
name = "b"
[[sessions]]
name = "s"
replies = [[{ text = "the file's answer" }, { finish = "stop" }]]
[[actions]]
do = "send"
node = "a"
session = "s"
text = "Hello"
at_s = 0.0
"""
AGAIN = WORLD + '[[actions]]\ndo = "send"\nnode = "a"\nsession = "s"\ntext = "And?"\nat_s = 5.0\n'
NAME = "own_rules:once"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory: a module with projects, a file that keeps the rule and one that breaks it."""
    (tmp_path / "own_rules.py").write_text(PROJECT)
    (tmp_path / "held.toml").write_text(WORLD)
    (tmp_path / "twice.toml").write_text(AGAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("own_rules", None)


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def own(*arguments: str) -> Result:
    """A command that names the project."""
    return command(*arguments, "--project", NAME)


pytestmark = pytest.mark.usefixtures("folder")


def test_run_judges_by_the_projects_rule() -> None:
    """Its provider answers and its rule is asked; without its name neither is."""
    broken = own("run", "twice.toml")
    assert broken.exit_code == 1
    assert "       it was asked twice\n         once, session s\n" in broken.stdout
    assert own("run", "held.toml").exit_code == 0
    plain = command("run", "twice.toml", "--json")
    assert plain.exit_code == 0
    assert (
        json.loads(plain.stdout)[0]["digest"]
        != json.loads(own("run", "twice.toml", "--json").stdout)[0]["digest"]
    )


def test_the_other_process_has_the_project_too() -> None:
    """What `--check-determinism` runs elsewhere is the same world, with the same provider."""
    done = own("run", "--check-determinism", "held.toml")
    assert (done.exit_code, done.stderr) == (0, "")


def test_matrix_judges_each_cell_by_it() -> None:
    """A cell is broken if the project's rule is."""
    Path("held.toml").write_text(WORLD.replace('[[nodes]]\nname = "b"\n', ""))
    done = own("matrix", "held.toml", "--json")
    facts = json.loads(done.stdout)
    rules = {each["rule"] for cell in facts["broken"] for each in cell["violations"]}
    assert (done.exit_code, rules) == (1, {"once"})


def test_explore_judges_each_order_by_it() -> None:
    """The first order that breaks the project's rule ends the search; what is saved breaks it again."""
    done = own("explore", "twice.toml", "--save", "found.toml")
    assert (done.exit_code, "it was asked twice" in done.stdout) == (1, True)
    assert f"see it again with: python -m sim replay --project {NAME} found.toml" in done.stdout
    assert own("replay", "found.toml").exit_code == 1
    assert own("explore", "held.toml", "--schedules-max", "3").exit_code == 0


def test_fuzz_saves_what_shrink_and_replay_understand() -> None:
    """What it saves, found in processes of its own, breaks the rule again; the hints name the project."""
    done = own("fuzz", "twice.toml", "--seeds", "2", "--jobs", "2", "--save", "found")
    assert done.exit_code == 1
    saved = Path("found/twice_seed_0.toml")
    assert f"saved {saved}; see it again with: python -m sim replay --project {NAME} {saved}" in done.stdout
    again = own("replay", str(saved))
    assert (again.exit_code, "once broke again" in again.stdout) == (1, True)
    alone = command("replay", str(saved))
    assert (alone.exit_code, "give its --project" in alone.stderr) == (2, True)
    small = own("shrink", "twice.toml", "-o", "small.toml")
    assert (
        small.stdout
        == f"wrote small.toml; see it again with: python -m sim run --project {NAME} small.toml\n"
    )
    assert command("shrink", "twice.toml").exit_code == 2


def test_report_tells_it() -> None:
    """The page shows the project's rule broken, and beside it the nearest run that kept it."""
    done = own("report", "twice.toml", "-o", "page.html")
    assert done.exit_code == 1
    assert "it was asked twice\n  once, session s\nbeside it: without the send" in done.stdout
    page = Path("page.html").read_text()
    assert "it was asked twice" in page
    assert "the project" in page


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_rule:once", "No module named 'own_rule'"),
        ("own_rules:twice", "module 'own_rules' has no attribute 'twice'"),
        ("own_rules:not_a_function", "own_rules:not_a_function isn't a function that makes a Project"),
        ("own_rules:nothing", "it made a str, not a Project"),
        ("own_rules:broken", "it raised LookupError: no seat is left"),
        ("no name at all", "invalid format: 'no name at all'"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(name: str, said: str) -> None:
    """Status 2, which name it was, and why; nothing is run."""
    for arguments in (["run", "held.toml"], ["matrix", "held.toml"], ["fuzz", "--seeds", "1"]):
        done = command(*arguments, "--project", name)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr == f"--project {name}: {said}\n"


def test_a_mistake_in_the_module_is_told() -> None:
    """A module that can't be imported says what is wrong in it."""
    Path("own_mistake.py").write_text("def once(:\n")
    done = command("run", "held.toml", "--project", "own_mistake:once")
    assert done.exit_code == 2
    assert done.stderr.startswith("--project own_mistake:once: it raised SyntaxError: ")
