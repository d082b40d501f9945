"""A world: the nodes, clients and faults of one scenario, run from one tape to rest, and what came of it."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from engine import events as ev
from engine.errors import ConfigError
from engine.limits import EngineConfig
from engine.log import append
from engine.plan import Plan
from engine.providers.script import says
from engine.providers.scripted import InTurn
from engine.records import Claim
from engine.store.transaction import SqliteTransaction
from sim.acts import Act
from sim.database import SimDatabase
from sim.disk.database import database_of
from sim.followers import follow
from sim.gate import Gate, SimulationError
from sim.ids import draw_salt
from sim.kernel import Kernel, ns_at
from sim.ledger import Ledger, Moment
from sim.machine import Machine
from sim.node import Life, SimNode
from sim.project import Project
from sim.provider import Replies
from sim.scenario import Action, Fault, Scenario
from sim.tape import Tape
from sim.trace import Trace
from sim.triggers import Triggers
from sim.watcher import HopObserver, Watcher

REST_LOOK_S = 1.0
REST_S_MAX = 7_200.0
"""How long after the latest fault or action the sessions may take to come to rest."""

GATES_MAX = 200_000


@attrs.define(kw_only=True)
class Run:
    """What came of one run. The database stays open for the checks; `close` it."""

    scenario: Scenario
    database: SimDatabase
    ledger: Ledger
    trace: Trace
    tape: Tape
    nodes: dict[str, SimNode]
    gates: int
    virtual_ms: float
    ended: SimulationError | None
    unrest: str | None
    config_error: ConfigError | None
    unfired: list[str]
    struck: list[Fault]  #: the faults whose moment came, those that still last included

    def close(self) -> None:
        """Free the database."""
        self.database.close()


class World:
    """Made for one run."""

    def __init__(
        self,
        scenario: Scenario,
        tape: Tape,
        *,
        project: Project | None = None,
        database: SimDatabase | None = None,
        keep: bool = True,
    ) -> None:
        self.scenario = scenario
        self.project = project or Project()
        self.tape = tape
        self.trace = Trace(keep=keep)
        self.kernel = Kernel(tape, self.trace, gates_max=GATES_MAX)
        self.database = database or database_of(scenario)
        self.ledger = Ledger()
        self.salt = draw_salt(tape)
        self.triggers = Triggers(self.kernel, self.ledger, self.moment)
        self.machine = Machine(self)
        self.sessions = {spec.name: self.session_id(spec.name) for spec in scenario.sessions}
        replies = {self.session_id(spec.name): spec.replies for spec in scenario.sessions}
        mangles = {self.session_id(spec.name): spec.mangle for spec in scenario.sessions}
        self.replies = Replies(InTurn((says("Done."),), by_session=replies), mangles)
        self.nodes = {spec.name: SimNode(self, spec) for spec in scenario.nodes}
        self.config_error: ConfigError | None = None
        self.watcher = Watcher(self)
        self.slowed: dict[str, int] = {}  #: by node's name: how many ms each of its gates takes
        self.on_gate: Callable[[Gate], None] = lambda gate: None  #: hears of every gate that parks
        self._unrest: str | None = None
        self._active_ns = 0
        self._ended: dict[str, trio.Event] = {}
        acts: list[Action | Fault] = [*scenario.actions, *scenario.faults]
        self.acts = [Act(self, spec, number) for number, spec in enumerate(acts, start=1)]
        self._ended = {act.name: trio.Event() for act in self.acts}
        self.nursery: trio.Nursery

    def session_id(self, name: str) -> str:
        """The id of a session that the scenario names."""
        return f"ses_{name}"

    # --- the run -------------------------------------------------------------------------------------

    def run(self) -> Run:
        """Run until everything is at rest, or until it is clear that it won't be."""
        ended = None
        try:
            self.scenario.engine_config()
        except ConfigError as exc:
            self.config_error = exc
        else:
            self._create_sessions()
            self.kernel.on_park = self._on_park
            try:
                self.kernel.run(self._main)
            except SimulationError as exc:
                ended = exc
        return Run(
            scenario=self.scenario,
            database=self.database,
            ledger=self.ledger,
            trace=self.trace,
            tape=self.tape,
            nodes=self.nodes,
            gates=self.kernel.gates_chosen,
            virtual_ms=self.kernel.now_ms,
            ended=ended,
            unrest=self._unrest,
            config_error=self.config_error,
            unfired=[act.name for act in self.acts if act.name not in self.ledger.fired],
            struck=[
                act.spec for act in self.acts if isinstance(act.spec, Fault) and act.name in self.ledger.fired
            ],
        )

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            self.nursery = nursery
            for act in self.acts:
                nursery.start_soon(act.run, name=f"act/{act.name}")
            for number, spec in enumerate(self.scenario.followers, start=1):
                nursery.start_soon(follow, self, spec, number, name=f"follower/{number}")
            for node in self.nodes.values():
                nursery.start_soon(self._boot, node, name=f"boot/{node.name}")
            await self._until_rest()
            self.watcher.check()
            self.kernel.freeze(nursery.cancel_scope)

    async def _boot(self, node: SimNode) -> None:
        with self.kernel.ending():
            await self.kernel.sleep_until(ns_at(node.spec.starts_at_s), node=self.kernel.world)
            node.start()

    async def _until_rest(self) -> None:
        """Wait until two looks in a row find everything at rest: followers get the time between them."""
        coming = (
            (spec.starts_at_s for spec in self.scenario.nodes),
            (spec.at_s for spec in self.scenario.followers),
        )
        begun_ns = max((ns_at(seconds) for group in coming for seconds in group), default=0)
        self._active_ns, restful = begun_ns, 0
        while restful < 2:
            await self.sleep(REST_LOOK_S)
            for act in self.acts:
                if act.stranded:
                    await act.give_up()
            if self.kernel.now_ns <= begun_ns or any(act.pending for act in self.acts):
                self._active_ns, restful = self.kernel.now_ns, 0
                continue
            restless = self._restless()
            restful = restful + 1 if restless is None else 0
            if self.kernel.now_ns - self._active_ns > ns_at(REST_S_MAX):
                self._unrest = restless
                return

    def _restless(self) -> str | None:
        """What still goes on, as a sentence; None at rest."""
        for node in self.nodes.values():
            if node.starting:
                return f"{node.name} is starting"
            if node.life is Life.UP and node.engine is not None and node.engine.coordinator.active():
                return f"{node.name} is busy with {', '.join(node.engine.coordinator.active())}"
        if not any(node.life is Life.UP and node.spec.sweep for node in self.nodes.values()):
            return None  # nobody is there who could go on
        reader = self.database.reader()
        for claim in reader.claims("", 1_000):
            return f"{claim.session_id} is claimed by {claim.execution_id} in phase {claim.phase}"
        for session_id in reader.sessions_waiting(1_000):
            return f"{session_id} has input that waits"
        for session_id in reader.released(1_000):
            return f"{session_id} was released from quarantine and isn't taken up"
        return None

    def _on_park(self, gate: Gate) -> bool:
        self.watcher.check()
        self.on_gate(gate)
        if self.slowed and gate.node.name in self.slowed:
            self.nodes[gate.node.name].linger(self.slowed[gate.node.name])
        return self.triggers.on_park(gate)

    # --- for the parts -------------------------------------------------------------------------------

    def watch(self, node: SimNode) -> HopObserver:
        """The observer of one incarnation's store."""
        return HopObserver(self.watcher, node)

    def moment(self) -> Moment:
        """Now, as every clock shows it."""
        return Moment(
            entry=self.trace.count,
            true_ms=self.kernel.now_ms,
            clocks={name: node.wall.read_ms(self.kernel.now_ns) for name, node in self.nodes.items()},
        )

    def act(self, name: str) -> Act:
        """The action or fault of that name."""
        return next(act for act in self.acts if act.name == name)

    def owner_of(self, claim: Claim) -> str | None:
        """The node whose execution holds a claim: its id was drawn there."""
        for commit in reversed(self.database.history.commits):
            for seen in commit.claims:
                if seen.after is not None and seen.after.execution_id == claim.execution_id:
                    return commit.node.rpartition(".")[0]
        return None

    async def sleep(self, seconds: float) -> None:
        """Wait in true time."""
        await self.kernel.sleep_until(self.kernel.now_ns + ns_at(seconds), node=self.kernel.world)

    async def ended(self, name: str) -> None:
        """An act is over: let those go on that come after it."""
        self._ended[name].set()
        self._active_ns = self.kernel.now_ns

    async def wait_ended(self, name: str) -> None:
        """Wait until an act is over."""
        await self._ended[name].wait()
        await self.kernel.gate("after", node=self.kernel.world)

    # --- setting up ----------------------------------------------------------------------------------

    def _create_sessions(self) -> None:
        connection = self.database.connection
        connection.execute("BEGIN IMMEDIATE")
        tx = SqliteTransaction(connection, now_ms=0)
        config: EngineConfig = self.scenario.engine_config()
        for spec in self.scenario.sessions:
            session_id = self.session_id(spec.name)
            created = ev.SessionCreated(
                session_id=session_id,
                title=spec.title,
                location=spec.location,
                model=spec.model,
                agent=spec.agent,
                system=spec.system,
            )
            append(tx, session_id, Plan(events=[created], value=None), f"evt_{spec.name}", None, config)
        connection.execute("COMMIT")
