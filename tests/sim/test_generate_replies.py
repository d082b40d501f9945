"""What generated models say: every reply can be played, and is bounded."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import ports
from engine.providers.script import Emit, Reply, Wait, says
from sim.generate.replies import CALLS, FIXED, PARTS_MAX, Speech
from sim.strategies import tapes
from sim.tape import Tape

EVENTS_MAX = 100
"""Far beyond what the parts of one reply come to."""

SILENCE_MS_MAX = 20 * 60_000

MANY = settings(deadline=None, suppress_health_check=list(HealthCheck))


def drawn(seeds: range) -> list[Reply]:
    """The replies of a session each from these seeds."""
    return [reply for seed in seeds for reply in Speech(Tape.seeded(seed), {}).replies()]


def emitted(reply: Reply) -> list[ports.ProviderEvent]:
    """The events of a reply."""
    return [move.event for move in reply.moves() if isinstance(move, Emit)]


@MANY
@given(tapes())
def test_whatever_is_drawn_can_be_played_and_ends(tape: Tape) -> None:
    """Each reply is a good script of bounded length; the last, which is repeated, is the plainest."""
    replies = Speech(tape, {}).replies()
    assert 2 <= len(replies) <= 5
    assert replies[-1] == says("Done")
    for reply in replies:
        moves = list(reply.moves())
        assert len(moves) <= EVENTS_MAX
        assert sum(move.ms for move in moves if isinstance(move, Wait)) <= SILENCE_MS_MAX


def test_zeros_are_the_plainest_answer() -> None:
    """Where nothing is drawn, a model says one text and stops."""
    assert Speech(Tape.fifo(), {}).replies() == (says("Done"), says("Done"))


def test_every_kind_of_event_and_of_end_comes_up() -> None:
    """Over some seeds composed replies hold each kind of event, break, are unreachable, and close badly."""
    replies = drawn(range(300))
    kinds = {type(event) for reply in replies for event in emitted(reply)}
    wanted = {cls for cls in ports.ProviderEvent.__subclasses__() if cls.__module__ == "engine.ports"}
    assert wanted <= kinds
    assert any(reply.unreachable for reply in replies)
    assert any(reply.on_close and reply.on_close.joins for reply in replies)
    assert any(reply.close_ms for reply in replies)
    assert any(not emitted(reply) for reply in replies)
    assert len({tuple(map(str, reply.lines)) for reply in replies}) > 10 * len(FIXED)


def test_composed_replies_call_the_tools_they_are_given() -> None:
    """With tools of a project, composed replies call these, with their inputs or spoilt ones."""
    calls = {"book": [{"flight": "F1"}]}
    found: list[ports.ToolCall] = []
    for seed in range(200):
        speech = Speech(Tape.seeded(seed), calls)
        found += [e for reply in speech.replies() for e in emitted(reply) if isinstance(e, ports.ToolCall)]
    own = [call for call in found if call.name == "book"]
    fixed = {line["tool"] for lines in FIXED for line in lines if "tool" in line}
    assert {call.name for call in found} <= {"book", "web_search", *fixed}
    assert {call.input for call in own} == {'{"flight":"F1"}', '{"flight":"F1"', '[{"flight":"F1"}]'}
    assert not {call.name for call in found} & (set(CALLS) - fixed)


@MANY
@given(tapes(), st.integers(1, 5))
def test_mangles_name_the_first_requests(tape: Tape, count: int) -> None:
    """Mangled events are among the first of the first requests, where they are likely to come."""
    speech = Speech(tape, {})
    for mangle in [speech.mangle() for _ in range(count)]:
        assert 1 <= mangle.request <= 3
        assert 1 <= mangle.event <= PARTS_MAX * 2
