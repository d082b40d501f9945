"""Hypothesis strategies whose draws are the tape, so that it shrinks schedule and world together.

Simplest is 0: first in, first out, no fault, no skew. What Hypothesis finds is therefore already the run that
is nearest to a plain one, and its example database replays it.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from sim.generate.worlds import generate
from sim.project import MakeProject, Project
from sim.scenario import Scenario
from sim.tape import Tape


@st.composite
def tapes(draw: Callable[[st.SearchStrategy[int]], int]) -> Tape:
    """A tape that asks Hypothesis for each value, for as long as the example runs."""
    return Tape(lambda stream, label, bound: draw(st.integers(0, bound - 1)))


@st.composite
def worlds(
    draw: Callable[[st.SearchStrategy[Tape]], Tape], project: MakeProject = Project
) -> tuple[Scenario, Tape]:
    """A generated world, and the tape that goes on to draw its run: `judge(*world, project=project)` runs it.

    Its model calls the tools of the project that `project` makes, if this says how (`Project.calls`).
    """
    tape = draw(tapes())
    return generate(tape, "drawn", project().calls), tape
