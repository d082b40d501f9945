"""Scenario files: reading them, and every kind of mistake in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConfigError
from engine.providers.script import Finish, Text, reply, says
from sim.scenario import (
    Action,
    After,
    ClockStep,
    ExpectAnswer,
    ExpectClaim,
    ExpectConfigRefused,
    ExpectEvents,
    ExpectRefused,
    Fault,
    Listener,
    Node,
    NodeClock,
    OnEvent,
    OnGate,
    Problem,
    Scenario,
    ScenarioError,
    Session,
    Tool,
    check_scenario,
    counts,
    load_scenario,
    parse_scenario,
)

DOCS = Path(__file__).parents[2] / "docs" / "scenarios.md"

GOOD = """\
proves = "A turn is answered."
[config]
lease_ms = 30000
[[nodes]]
name = "a"
[[sessions]]
name = "s"
replies = [ [ { text = "Hi" }, { finish = "stop" } ] ]
[[tools]]
name = "lookup"
[[actions]]
as = "i1"
do = "interrupt"
node = "a"
session = "s"
at_s = 1.0
[[faults]]
as = "f1"
kind = "stall"
node = "a"
when = { event = "step.started", window = "notify" }
for_s = 40.0
[[expect]]
status = "s"
is = "idle"
"""


def problems_of(text: str) -> list[Problem]:
    return parse_scenario(text, "x.toml")[1]


def loaded(text: str) -> Scenario:
    scenario, problems = parse_scenario(text, "x.toml")
    assert scenario is not None, problems
    return scenario


def test_a_good_file_becomes_a_scenario() -> None:
    """Every table is there, with its line, and what isn't said has its default."""
    assert loaded(GOOD) == Scenario(
        proves="A turn is answered.",
        name="x",
        config={"lease_ms": 30_000},
        nodes=(Node(name="a", line=4),),
        sessions=(Session(name="s", replies=(reply(Text(text="Hi"), Finish()),), line=6),),
        tools=(Tool(name="lookup", line=9),),
        actions=(Action(as_="i1", do="interrupt", node="a", session="s", at_s=1.0, line=11),),
        faults=(
            Fault(
                as_="f1",
                kind="stall",
                node="a",
                when=OnEvent(event="step.started", window="notify"),
                for_s=40.0,
                line=17,
            ),
        ),
        expect=(loaded(GOOD).expect[0],),
    )
    assert loaded(GOOD).engine_config().lease_ms == 30_000


def test_the_smallest_file_has_one_node_and_says_what_it_proves() -> None:
    """Nothing else is required; a session without replies gets a plain answer."""
    small = loaded('proves = "It starts."\nnodes = [ { name = "a" } ]\nsessions = [ { name = "s" } ]')
    assert small.sessions[0].replies == (says("Done."),)
    assert (small.config, small.actions, small.expect) == ({}, (), ())


def test_clocks_and_triggers_and_fields_are_read() -> None:
    """The nested parts become what they say."""
    text = GOOD + (
        '[[nodes]]\nname = "b"\nclock.offset_ms = -5\nclock.steps = [ { at_s = 1, by_ms = -3 } ]\n'
        '[[faults]]\nkind = "cancel"\nnode = "b"\nwhen = { after = "f1", delay_s = 2 }\n'
        '[[faults]]\nkind = "power_cut"\nnode = "b"\nwhen = { gate = 7, node = "b" }\n'
        '[[listeners]]\nnode = "b"\nevent = "step.ended"\nnth = 0\ndoes = "sleeps"\nfor_ms = 9\n'
        '[[expect]]\nevents = "s"\ntype = "step.interrupted"\nat_most = 1\ncause = "user"\n'
        '[[expect]]\nclaim = "s"\nat = "i1"\nphase = "unknown"\n'
    )
    made = loaded(text)
    assert made.nodes[1].clock == NodeClock(offset_ms=-5, steps=(ClockStep(at_s=1.0, by_ms=-3),))
    assert made.faults[1].when == After(after="f1", delay_s=2.0)
    assert made.faults[2].when == OnGate(gate=7, node="b")
    assert made.listeners == (
        Listener(node="b", event="step.ended", nth=0, does="sleeps", for_ms=9, line=38),
    )
    assert made.expect[1] == ExpectEvents(
        events="s", type="step.interrupted", at_most=1, having={"cause": "user"}, line=44
    )
    assert made.expect[2] == ExpectClaim(claim="s", at="i1", phase="unknown", line=49)


def test_the_name_is_the_files_unless_it_says_another(tmp_path: Path) -> None:
    """A file is called by its stem."""
    path = tmp_path / "stale_owner.toml"
    path.write_text(GOOD)
    assert load_scenario(path).name == "stale_owner"
    assert load_scenario(path).file == str(path)
    path.write_text('name = "other"\n' + GOOD)
    assert load_scenario(str(path)).name == "other"


def test_those_who_wait_for_each_other_are_told() -> None:
    """A circle of `after` would never begin; each of its members is told."""
    text = GOOD + (
        '[[faults]]\nas = "x"\nkind = "cancel"\nnode = "a"\nwhen = { after = "y" }\n'
        '[[faults]]\nas = "y"\nkind = "cancel"\nnode = "a"\nwhen = { after = "x" }\n'
        '[[faults]]\nas = "z"\nkind = "cancel"\nnode = "a"\nwhen = { after = "y" }\n'
    )
    assert [(p.key, p.message) for p in problems_of(text)] == [
        ("faults[1].when.after", "waits for itself: x after y after x"),
        ("faults[2].when.after", "waits for itself: y after x after y"),
    ]


def test_all_problems_come_at_once_in_the_order_of_their_lines() -> None:
    """Mistakes of shape and of meaning are told together, and a broken table raises no second complaint."""
    text = GOOD.replace('name = "s"', 'name = "s"\nmodle = "x"').replace('as = "f1"', 'as = "f1"\nfoo = 1')
    text = text.replace("lease_ms", "leese_ms") + '[[expect]]\norder = "t"\ncontains = []\n'
    problems = problems_of(text)
    assert [problem.key for problem in problems] == [
        "config.leese_ms",
        "sessions[0].modle",
        "faults[0].foo",
        "expect[1].order",
    ]
    assert [problem.line for problem in problems] == sorted(problem.line for problem in problems)


def test_a_refused_configuration_may_be_what_the_file_is_about() -> None:
    """With `config_refused` a broken relation is no problem; an unknown field or a wrong type still is."""
    short = GOOD.replace("30000", "9000") + '[[expect]]\nconfig_refused = "must exceed"\n'
    made = loaded(short)
    assert made.config_refused == ExpectConfigRefused(config_refused="must exceed", line=26)
    with pytest.raises(ConfigError, match="must exceed"):
        made.engine_config()
    assert loaded(GOOD).config_refused is None
    assert loaded(short.replace("9000", "0")).config == {"lease_ms": 0}
    assert [p.key for p in problems_of(short.replace("9000", '"x"'))] == ["config.lease_ms"]
    assert [p.key for p in problems_of(short.replace("lease_ms", "leese_ms"))] == ["config.leese_ms"]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('proves = "x"\nnodes = [\n', 2, "isn't TOML"),
        ('proves = "x"\n\n[[nodes]\n', 3, "isn't TOML"),
        ('proves = "x"\nproves = "y"\n', 2, "isn't TOML"),
        ("x = " + "[" * 9_000, 1, ""),
    ],
)
def test_what_is_no_toml_is_told_at_the_parsers_line(text: str, line: int, says: str) -> None:
    """A syntax error keeps the line and the words of the parser."""
    problems = problems_of(text)
    assert [(p.line, p.key) for p in problems] == [(line, "")]
    assert says in problems[0].message


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    """A missing file, a folder, and bytes that are no text are told like any mistake."""
    missing = check_scenario(tmp_path / "no.toml")
    assert [(p.file, p.line) for p in missing] == [(str(tmp_path / "no.toml"), 1)]
    assert "can't be read" in missing[0].message
    assert "can't be read" in check_scenario(tmp_path)[0].message
    (tmp_path / "b.toml").write_bytes(b'proves = "x"\n# \xff')
    assert [(p.line, p.message) for p in check_scenario(tmp_path / "b.toml")] == [(2, "isn't UTF-8 text")]


def test_loading_a_bad_file_raises_all_its_problems(tmp_path: Path) -> None:
    """The error's message has one line for each problem, in the form editors can follow."""
    path = tmp_path / "bad.toml"
    path.write_text(GOOD.replace("proves", "proofs").replace("at_s", "at_z"))
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    assert caught.value.problems == check_scenario(path)
    told = str(caught.value).splitlines()
    assert len(told) == 3
    assert f'{path}:16: actions[0].at_z: unknown key "at_z" (did you mean "at_s"?)' in told


def test_a_tool_returns_its_output_as_often_as_it_says() -> None:
    """Text is repeated, anything else is returned as it is."""
    assert Tool(name="t", output="ab", repeat=3).value(1) == "ababab"
    assert Tool(name="t", output=[1]).value(1) == [1]
    assert Tool(name="t").value(1) is None


@pytest.mark.parametrize(
    ("expect", "met"),
    [
        (ExpectEvents(events="s", type="step.ended", count=2), [2]),
        (ExpectEvents(events="s", type="step.ended", at_least=2), [2, 3]),
        (ExpectEvents(events="s", type="step.ended", at_most=1), [0, 1]),
        (ExpectEvents(events="s", type="step.ended", at_least=1, at_most=2), [1, 2]),
        (ExpectRefused(refused="ClaimLost"), [1, 2, 3]),
        (ExpectRefused(refused="ClaimLost", at_most=1), [0, 1]),
        (ExpectRefused(refused="ClaimLost", count=0), [0]),
    ],
)
def test_a_count_is_met_within_its_bounds(expect: ExpectEvents, met: list[int]) -> None:
    """Exactly, at least, at most; a refusal is expected once or more if no number is given."""
    assert [found for found in range(4) if counts(expect, found)] == met


def test_an_answer_allows_one_word_or_several() -> None:
    """`is` and `one_of` come out as one list."""
    assert ExpectAnswer(answer="i", is_="settled").allowed == ("settled",)
    assert ExpectAnswer(answer="i", one_of=("settled", "stopped")).allowed == ("settled", "stopped")


# --- anything at all -------------------------------------------------------------------------------------

LINES_OF_GOOD = GOOD.splitlines()


@given(
    edits=st.lists(
        st.tuples(
            st.integers(0, len(LINES_OF_GOOD)), st.sampled_from([*LINES_OF_GOOD, "", 'x = "y"', "as = 3"])
        ),
        max_size=4,
    ),
    drops=st.lists(st.integers(0, len(LINES_OF_GOOD) - 1), max_size=3),
)
def test_any_text_is_a_scenario_or_has_problems(edits: list[tuple[int, str]], drops: list[int]) -> None:
    """However a file is mangled, reading it ends with a scenario or with problems on lines that exist."""
    rows = [row for nth, row in enumerate(LINES_OF_GOOD) if nth not in drops]
    for at, row in edits:
        rows.insert(min(at, len(rows)), row)
    scenario, problems = parse_scenario("\n".join(rows), "x.toml")
    assert (scenario is None) == bool(problems)
    assert all(1 <= problem.line <= max(1, len(rows)) for problem in problems)
