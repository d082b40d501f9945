"""`replay` says whether a saved failure is still there, and shows the end of its trace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sim.__main__ import main
from sim.ablations import named
from sim.cli import replay as cli_replay
from sim.cli.replay import LAST, Replay, replayed
from sim.scenario import Scenario, load_scenario

BROKEN_BY = "retry_before_visible_output"

WORLD = """
proves = "Found by fuzzing, and must hold: a retried what it had shown (I13, session s, node a.1)"
name = "saved"
[[nodes]]
name = "a"
[[sessions]]
name = "s"
replies = [[{ text = "Half an" }, { cut = "reset" }], [{ text = "Done" }, { finish = "stop" }]]
[[actions]]
do = "send"
node = "a"
session = "s"
text = "Hello"
at_s = 0.0
[tape]
schedule = [0, 1]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "saved.toml"
    path.write_text(WORLD)
    return path


@pytest.fixture
def broken() -> Iterator[None]:
    with named(BROKEN_BY).off():
        yield


def replay(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, arguments)])


@pytest.mark.usefixtures("broken")
def test_the_same_rule_breaks_again(file: Path) -> None:
    """Status 1, the sentence with its place, one digest for two runs, and the last entries."""
    done = replay(file)
    assert done.exit_code == 1
    first, sentence, place, *rest = done.stdout.splitlines()
    assert first == "BROKEN saved: I13 broke again"
    assert sentence == (
        "  a wrote retry.scheduled: a retry is scheduled for step 1, which had shown text.started at seq 5"
    )
    assert place.strip().startswith("I13, session s, node a.1, at ")
    end = rest.index("the last of the trace:")
    assert rest[end - 1].startswith("twice the same, digest ")
    assert 0 < len(rest[end + 1 :]) <= LAST


def test_what_was_mended_holds(file: Path) -> None:
    """Status 0, and the rule that it had broken is named."""
    done = replay(file)
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "held saved: I13 holds now")


@pytest.mark.usefixtures("broken")
def test_another_rule_is_told_apart(file: Path) -> None:
    """What breaks now isn't what had broken when the file was saved, or the file doesn't say."""
    file.write_text(WORLD.replace("(I13,", "(I3,"))
    assert replay(file).stdout.startswith("BROKEN saved: I13 broke now, and I3 holds\n")
    file.write_text(WORLD.replace("Found by", "Seen by"))
    assert replay(file).stdout.startswith("BROKEN saved: I13 broke\n")


@pytest.mark.usefixtures("broken")
def test_the_json_says_all_of_it(file: Path) -> None:
    """The facts of `run`, and beside them what became of the rule, both digests, and the entries."""
    done = replay(file, "--json")
    facts = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (facts["verdict"], facts["rule"], facts["same_rule"]) == ("broken", "I13", True)
    assert facts["digests"] == [facts["digest"]] * 2
    assert facts["difference"] is None
    assert facts["violations"][0]["rule"] == "I13"
    assert len(facts["trace"]) <= LAST
    whole = json.loads(replay(file, "--json", "--trace").stdout)
    assert len(whole["trace"]) > len(facts["trace"])
    assert whole["trace"][0].startswith("#0 ")


def test_the_whole_trace_is_shown_on_demand(file: Path) -> None:
    """`--trace` begins with the first entry and leaves none out."""
    lines = replay(file, "--trace").stdout.splitlines()
    entries = lines[lines.index("the trace:") + 1 :]
    assert [int(one.split()[0].removeprefix("#")) for one in entries] == list(range(len(entries)))


def test_runs_that_differ_are_broken(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the second run goes another way, that is a failure, and the first entry that differs is shown."""
    judged: list[Scenario] = []
    original = cli_replay.judge

    def other_tape(scenario: Scenario, tape: Any, checks: Sequence[Any] = (), **more: Any) -> Any:
        judged.append(scenario)
        return original(scenario, tape if len(judged) == 1 else cli_replay.tape_of(plain), checks, **more)

    plain = load_scenario(file.parent / _without_tape(file))
    monkeypatch.setattr(cli_replay, "judge", other_tape)
    found: Replay = replayed(load_scenario(file))
    assert found.broken
    assert found.digests[0] != found.digests[1]
    assert found.difference is not None
    assert found.difference.startswith("the runs part at entry ")


def _without_tape(file: Path) -> str:
    (file.parent / "plain.toml").write_text(WORLD.partition("[tape]")[0])
    return "plain.toml"


def test_what_cant_be_replayed_is_refused(file: Path, tmp_path: Path) -> None:
    """Status 2 and the reason for a file without a tape, for one with mistakes, and for none."""
    file.write_text(WORLD.partition("[tape]")[0])
    plain = replay(file)
    assert plain.exit_code == 2
    assert plain.stderr == f"{file}: it has no recorded tape ([tape]) to replay; use `run` for it\n"
    file.write_text("proves = 1")
    assert replay(file).exit_code == 2
    assert replay(tmp_path / "none.toml").exit_code == 2
