"""How fast the simulator is: run it with `python -m bench.sim_speed`. Figures are printed, never asserted.

- runs per second and core of the standard small world: two nodes, two sessions with one tool each, checks on
- what one gated step costs, with nothing but the kernel
- simulated seconds per second of an hour in which eight nodes each keep a claim alive and sweep
- the whole matrix of `interrupted_step_started`, every gate in every mode
- generated worlds per second with one process and with two, and what that gained
"""

from __future__ import annotations

import time
from pathlib import Path

from engine.providers.script import parse_reply
from sim.fuzz import campaign
from sim.kernel import Kernel
from sim.matrix import run_matrix
from sim.run import judge
from sim.scenario import Action, Node, Scenario, Session, Tool, load_scenario
from sim.tape import Tape
from sim.trace import Trace

RUNS = 200
GATES = 20_000
SEEDS = 400
HOUR_MS = 3_600_000
FLAGSHIP = Path(__file__).parents[1] / "scenarios" / "interrupted_step_started.toml"

CALL = [{"call": "c1", "tool": "look", "input": {}}, {"finish": "tool_calls"}]
ANSWER = [{"text": "Done"}, {"finish": "stop"}]
STALL = [{"text": "Thinking"}, {"stall_ms": HOUR_MS}, {"finish": "stop"}]


def small_world() -> Scenario:
    """Two nodes, a session on each, one tool call each."""
    replies = (parse_reply(CALL, "bench"), parse_reply(ANSWER, "bench"))
    names = (("a", "s"), ("b", "t"))
    return Scenario(
        proves="Speed.",
        name="small",
        nodes=tuple(Node(name=node) for node, _ in names),
        sessions=tuple(Session(name=session, replies=replies) for _, session in names),
        tools=(Tool(name="look", output="42"),),
        actions=tuple(
            Action(do="send", node=node, session=session, text="Go", at_s=0.0) for node, session in names
        ),
    )


def hour_of_eight() -> Scenario:
    """Eight nodes are the most a scenario has; each keeps one claim alive for an hour and sweeps."""
    names = [(f"n{number}", f"s{number}") for number in range(8)]
    patient = {"provider_idle_ms_max": 2 * HOUR_MS}
    return Scenario(
        proves="Speed.",
        name="hour",
        config=patient,
        nodes=tuple(Node(name=node) for node, _ in names),
        sessions=tuple(Session(name=session, replies=(parse_reply(STALL, "bench"),)) for _, session in names),
        actions=tuple(
            Action(do="send", node=node, session=session, text="Go", at_s=0.0) for node, session in names
        ),
    )


def runs_per_second() -> None:
    """The standard small world, a seed each."""
    world = small_world()
    judge(world, Tape.fifo())
    began, gates = time.perf_counter(), 0
    for seed in range(RUNS):
        gates += judge(world, Tape.seeded(seed)).gates
    seconds = time.perf_counter() - began
    print(f"small world: {RUNS / seconds:.0f} runs/s, {gates / RUNS:.0f} gates a run")


def cost_of_a_gate() -> None:
    """One task that passes gates, and nothing else."""
    kernel = Kernel(Tape.fifo(), Trace(keep=False))

    async def pass_gates() -> None:
        for _ in range(GATES):
            await kernel.gate("bench", node=kernel.world)

    began = time.perf_counter()
    kernel.run(pass_gates)
    print(f"gated step: {(time.perf_counter() - began) / GATES * 1e6:.1f} us")


def simulated_seconds() -> None:
    """An hour of nodes that do nothing but renew and sweep."""
    began = time.perf_counter()
    result = judge(hour_of_eight(), Tape.fifo())
    seconds = time.perf_counter() - began
    print(f"an hour of eight nodes: {result.virtual_s / seconds:.0f} simulated s/s, {result.gates} gates")


def whole_matrix() -> None:
    """Every gate of the flagship in every mode, on one core."""
    began = time.perf_counter()
    cells = run_matrix(load_scenario(FLAGSHIP)).as_json()["cells"]
    print(f"matrix of {FLAGSHIP.stem}: {cells} cells in {time.perf_counter() - began:.1f} s")


def jobs() -> None:
    """The same generated worlds by one process and by two."""
    one, two = (campaign(seeds=SEEDS, first=0, seconds=None, jobs=jobs, save=None) for jobs in (1, 2))
    rates = [found.seeds / found.seconds for found in (one, two)]
    times = f"{rates[1] / rates[0]:.2f} times as many"
    print(f"generated worlds: {rates[0]:.0f} runs/s, with two processes {rates[1]:.0f}, {times}")


if __name__ == "__main__":
    runs_per_second()
    cost_of_a_gate()
    simulated_seconds()
    whole_matrix()
    jobs()
