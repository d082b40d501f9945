"""Puts a scenario together from a session's log, runs it once, and says how near it came to the log."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from engine import events as ev
from engine.codec import decode_row
from engine.events import Stored
from engine.providers.script import Call, Reply, says
from sim.from_log.moments import NODE, SESSION, Moments
from sim.from_log.redact import Redaction
from sim.from_log.replies import Script, steps_of
from sim.record import Record
from sim.run import Result, judge
from sim.saved import dump
from sim.scenario import ExpectOrder, Node, Scenario, Session, parse_scenario
from sim.tape import Tape
from sim.verdict import Violation


@attrs.frozen(kw_only=True)
class Made:
    """The scenario, its text, the result of its first run, and what isn't as it was in the log.

    If `same_course`, its log has the types of the real one, in their order, and the scenario expects that.
    """

    scenario: Scenario
    text: str
    result: Result
    same_course: bool
    notes: Sequence[str]


def scenario_from_log(log: Sequence[Stored], name: str, redaction: Redaction) -> Made:
    """The scenario of one session; `log` is the whole of it. `name` is the scenario's.

    Raises `ValueError` for a log that doesn't begin with `session.created`.
    """
    if not log or not isinstance(log[0].event, ev.SessionCreated):
        raise ValueError("the log doesn't begin with session.created")
    created = log[0].event
    script = Script(redaction)
    replies = [script.reply(step, wait) for step, wait in steps_of(log)]
    moments = Moments(log, redaction)
    session = Session(
        name=SESSION,
        model=redaction.text(created.model),
        system=redaction.text(created.system),
        agent=redaction.text(created.agent),
        title=redaction.text(created.title),
    )
    scenario = Scenario(
        proves=f"A session of {len(replies)} requests goes as it went once, and keeps every invariant.",
        name=name,
        nodes=(Node(name=NODE),),
        sessions=(attrs.evolve(session, replies=_ended(replies)),),
        tools=tuple(script.tools),
        actions=tuple(moments.actions),
        faults=tuple(moments.faults),
    )
    result, types = _try(scenario)
    wanted = [stored.type for stored in log]
    if types == wanted:
        order = ExpectOrder(order=SESSION, types=tuple(wanted))
        scenario = attrs.evolve(scenario, expect=(order,))
    notes = [*script.notes, *_losses(created, log, redaction), *_difference(wanted, types)]
    text = dump(scenario)
    _, problems = parse_scenario(text, f"{name}.toml")
    assert not problems, f"what was made can't be read back: {problems[0]}"
    return Made(scenario=scenario, text=text, result=result, same_course=types == wanted, notes=notes)


def _ended(replies: Sequence[Reply]) -> tuple[Reply, ...]:
    """The last reply is repeated for further requests, so it must be one that asks for none."""
    calls = not replies or any(isinstance(line, Call) for line in replies[-1].lines)
    return (*replies, says("Done.")) if calls else tuple(replies)


def _try(scenario: Scenario) -> tuple[Result, list[str]]:
    """Run it once: the result, and the types of the events it logged."""
    types: list[str] = []

    def read(record: Record) -> Sequence[Violation]:
        types.extend(decode_row(row).type for row in record.events(f"ses_{SESSION}"))
        return ()

    return judge(scenario, Tape.fifo(), checks=(read,)), types


def _losses(created: ev.SessionCreated, log: Sequence[Stored], redaction: Redaction) -> list[str]:
    found = []
    if created.location is not None:
        found.append("the session's location is left out")
    if any(isinstance(stored.event, ev.InputDeliveryChanged | ev.SessionRenamed) for stored in log):
        found.append("changes of a title or of an input's delivery are left out")
    if redaction.nulls:
        found.append(f"{redaction.nulls} nulls inside values became the text `null`")
    return found


def _difference(wanted: list[str], types: list[str]) -> list[str]:
    if wanted == types:
        return []
    for place, pair in enumerate(zip(wanted, types, strict=False)):
        if pair[0] != pair[1]:
            return [f"from event {place} on it goes another way: {pair[1]} instead of {pair[0]}"]
    shorter = "ends before" if len(types) < len(wanted) else "goes on after"
    return [f"it {shorter} event {min(len(types), len(wanted)) - 1} of the log"]
