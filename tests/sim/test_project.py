"""A project of a user's own in these worlds: its provider, tools, listeners and invariants."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from engine.errors import ToolError
from engine.events import Stored
from engine.ports import (
    Finish,
    Listener,
    ProviderEvent,
    System,
    TextChunk,
    TextEnd,
    TextStart,
    Tool,
    ToolCall,
    ToolContext,
)
from engine.records import JSON, Request
from sim.fuzz import campaign
from sim.project import Project, find_project
from sim.record import Record
from sim.run import judge, run_scenario
from sim.scenario import Scenario, parse_scenario
from sim.strategies import worlds
from sim.tape import Tape
from sim.verdict import Violation
from sim.world import World

FEW = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)

PLAIN = """
proves = "A session is answered."
[[nodes]]
name = "a"
[[sessions]]
name = "s"
replies = [
  [ { call = "c9", tool = "count", input = { by = 2 } }, { finish = "tool_calls" } ],
  [ { text = "scripted" }, { finish = "stop" } ],
]
[[actions]]
do = "send"
node = "a"
session = "s"
text = "Go"
at_s = 0.0
"""


def scenario(more: str = "") -> Scenario:
    """The plain world, with these tables, too."""
    found, problems = parse_scenario(PLAIN + more, "plain.toml")
    assert found is not None, problems
    return found


@attrs.define
class Counter:
    """What a project's tool acts on."""

    total: int = 0
    told: list[str] = attrs.field(factory=list)
    closed: int = 0


@attrs.frozen
class Model:
    """A provider that waits for nothing: it has the tool count once, then says so."""

    counter: Counter

    @contextlib.asynccontextmanager
    async def open(self, request: Request) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """One request."""
        yield self._answer(request)

    async def _answer(self, request: Request) -> AsyncIterator[ProviderEvent]:
        try:
            if any("output" in part for message in request.messages for part in message.parts):
                yield TextStart()
                yield TextChunk(text="counted")
                yield TextEnd()
                yield Finish()
            else:
                yield ToolCall(call_id="c1", name="count", input='{"by": 1}')
                yield Finish(reason="tool_calls")
        finally:
            self.counter.closed += 1


def counting(counter: Counter, *, provider: bool = True, most: int = 1) -> Project:
    """A project that counts, and demands that it doesn't count further than `most`."""

    async def count(context: ToolContext, value: dict[str, JSON]) -> JSON:
        by = value["by"]
        assert isinstance(by, int)
        counter.total += by
        return counter.total

    async def listen(stored: Stored) -> None:
        counter.told.append(stored.event.type)

    def tools(system: System) -> list[Tool]:
        return [Tool(name="count", description="count", schema={"type": "object"}, handler=count)]

    def listeners(system: System) -> list[Listener]:
        return [listen]

    def check(record: Record) -> Iterator[Violation]:
        if counter.total > most:
            yield Violation(rule="count", sentence=f"it counted to {counter.total}")

    return Project(
        provider=(lambda system: Model(counter)) if provider else None,
        tools=tools,
        listeners=listeners,
        checks=[check],
        calls={"count": [{"by": 1}]},
    )


def forever() -> Project:
    """A project for campaigns: any run in which its tool is called breaks its rule."""
    return counting(Counter(), most=0)


def lenient() -> Project:
    """A project whose tool may be called as often as anybody likes."""
    return counting(Counter(), provider=False, most=1_000_000)


def test_provider_tools_listeners_and_checks_take_part() -> None:
    """The project's provider answers, its tool runs, its listener hears of it, and its check judges."""
    counter = Counter()
    assert run_scenario(scenario(), project=lambda: counting(counter)).violations == []
    assert counter.total == 1
    assert counter.told[-1] == "execution.succeeded"
    broken = run_scenario(scenario(), project=lambda: counting(Counter(), most=0))
    assert [str(one) for one in broken.violations] == ["it counted to 1 (count)"]


def test_whatever_a_project_leaves_out_is_the_scenarios() -> None:
    """Without a provider of its own, scripted replies call the project's tools."""
    counter = Counter()
    project = counting(counter, provider=False, most=2)
    assert run_scenario(scenario(), project=lambda: project).violations == []
    assert counter.total == 2
    assert run_scenario(scenario(), project=Project).digest == run_scenario(scenario()).digest


def test_a_tool_of_the_project_takes_the_place_of_one_of_the_same_name() -> None:
    """Of two tools with one name the project's is called; the scenario's others stay."""
    more = '[[tools]]\nname = "count"\nfails = "the double"\n[[tools]]\nname = "other"\n'
    counter = Counter()
    result = run_scenario(scenario(more), project=lambda: counting(counter))
    assert counter.total == 1
    opened = next(entry for entry in result.entries if entry.label == "open")
    assert [tool.name for tool in opened.fields["request"].tools] == ["count", "other"]


def test_each_run_has_a_project_of_its_own() -> None:
    """A project is made anew for each run, so that the second run of a check begins like the first."""
    made: list[Counter] = []

    def project() -> Project:
        made.append(Counter())
        return counting(made[-1])

    assert run_scenario(scenario(), check_determinism=True, project=project).violations == []
    assert [counter.total for counter in made] == [1, 1]


def test_a_project_that_remembers_runs_is_found_out() -> None:
    """A project that is shared by two runs makes them differ, and the difference is told."""
    counter = Counter()
    result = run_scenario(
        scenario(), check_determinism=True, project=lambda: counting(counter, most=9, provider=False)
    )
    assert [violation.rule for violation in result.violations] == ["determinism"]


def test_requests_and_tool_starts_are_noted_outside_the_log() -> None:
    """The ledger knows what a project's provider and tools were asked, as it does of the doubles."""
    run = World(scenario(), Tape.fifo(), project=counting(Counter())).run()
    try:
        ledger = run.ledger
        assert len(ledger.opened) == 2
        assert [(one.tool, one.call_id) for one in ledger.tools] == [("count", "c1")]
    finally:
        run.close()


def test_a_provider_that_waits_for_nothing_is_interrupted_at_each_event() -> None:
    """Before each event of a project's provider, and around each of its calls, stands a gate."""
    result = run_scenario(scenario(), project=lambda: counting(Counter()))
    events = [entry.label for entry in result.entries if entry.kind == "provider"]
    assert events == ["open", "ToolCall", "Finish", "open", "TextStart", "TextChunk", "TextEnd", "Finish"]
    reader = [entry for entry in result.entries if "/reader/" in entry.task]
    places = [nth for nth, entry in enumerate(reader) if entry.kind == "provider"]
    assert len(places) == len(events)
    for first, second in pairwise(places):
        kinds = [entry.kind for entry in reader[first:second]]
        assert kinds.count("gate") >= 2  # one is the engine's own


def test_an_asynchronous_generator_is_closed_where_it_was_opened() -> None:
    """A project's stream that is left early is closed by the engine, and not by the garbage collector."""
    more = """
[[actions]]
do = "interrupt"
node = "a"
session = "s"
when = { event = "text.started", window = "after_commit" }
"""
    counter = Counter()
    result = run_scenario(scenario(more), project=lambda: counting(counter))
    assert result.violations == []
    assert counter.closed == 2


def test_a_campaign_judges_generated_worlds_by_the_projects_rule(tmp_path: Path) -> None:
    """Seeds run with the project of that name; what breaks its rule is shrunk with it, and saved."""
    found = campaign(
        seeds=4, first=0, seconds=None, jobs=1, save=tmp_path, project="tests.sim.test_project:forever"
    )
    assert {one.rule for failure in found.failures for one in failure.violations} == {"count"}
    assert len(found.saved) == len(found.failures) > 0
    assert "it counted to" in Path(found.saved[0]).read_text(encoding="utf-8")


@FEW
@given(worlds(lenient))
def test_drawn_worlds_call_the_projects_tools(world: tuple[Scenario, Tape]) -> None:
    """Worlds that Hypothesis draws for a project hold, and composed replies call no tool but its own."""
    assert judge(*world, project=lenient).violations == []


def test_a_name_that_leads_nowhere_is_refused() -> None:
    """Each way in which a name can be wrong has its own error."""
    assert find_project("tests.sim.test_project:forever") is forever
    for name, error in (
        ("tests.sim.nowhere:forever", ImportError),
        ("tests.sim.test_project:nothing", AttributeError),
        ("tests.sim.test_project:PLAIN", TypeError),
        ("no name at all", ValueError),
    ):
        with pytest.raises(error):
            find_project(name)


def test_what_a_tool_raises_is_the_models_to_see() -> None:
    """An error of a project's tool ends its call, and not the run."""

    async def refuse(context: ToolContext, value: dict[str, JSON]) -> JSON:
        raise ToolError("failed", "not today")

    def project() -> Project:
        tool = Tool(name="count", description="count", schema={"type": "object"}, handler=refuse)
        return Project(tools=lambda system: [tool])

    assert run_scenario(scenario(), project=project).violations == []


def test_a_project_that_no_engine_takes_is_no_clean_campaign() -> None:
    """Where every engine refuses the project's tools, each world is broken: it proves nothing."""
    found = campaign(seeds=2, first=0, seconds=None, jobs=1, save=None, project=f"{__name__}:refused")
    assert [failure.violations[0].rule for failure in found.failures] == ["config", "config"]
    assert "the schema of tool 'odd' is broken" in found.failures[0].violations[0].sentence


def test_a_check_that_raises_is_told_like_a_breach() -> None:
    """Its run is named and can be saved, and the other checks are asked all the same."""

    def bad(record: Record) -> Iterator[Violation]:
        raise LookupError("no such seat")
        yield

    def broken(record: Record) -> list[Violation]:
        return [Violation(rule="mine", sentence="broken")]

    result = judge(scenario(), Tape.fifo(), project=lambda: Project(checks=(bad, broken)))
    assert [(one.rule, one.sentence) for one in result.violations] == [
        ("project", "the check bad raised LookupError: no such seat"),
        ("mine", "broken"),
    ]


def refused() -> Project:
    """A project with a tool whose schema is broken."""

    async def run(context: ToolContext, value: dict[str, JSON]) -> JSON:
        return None

    odd = Tool(name="odd", description="", schema={"type": "nonsense"}, handler=run)
    return Project(tools=lambda system: [odd])
