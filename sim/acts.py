"""What happens in a run: clients' actions and faults, each a task that waits for its moment."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from engine.api import Engine
from engine.errors import FencepostError
from sim.faults import restart, strike
from sim.gate import Node, NodeState
from sim.kernel import ns_at
from sim.ledger import InterruptAnswered
from sim.node import SimNode
from sim.scenario import DONE, Action, After, Fault, OnDisk
from sim.triggers import Trip

if TYPE_CHECKING:
    from sim.world import World


class Act:
    """One action or fault, from its arming to its end."""

    def __init__(self, world: World, spec: Action | Fault, number: int) -> None:
        self.world = world
        self.spec = spec
        kind = spec.do if isinstance(spec, Action) else spec.kind
        self.name = spec.as_ or f"{kind}-{number}"
        self.over = False
        self._asked: Node | None = None  #: the incarnation whose front door a client is at
        self.trip: Trip | None = None
        if spec.when is not None and not isinstance(spec.when, After):
            named = getattr(spec.when, "session", None)
            self.trip = world.triggers.arm(self.name, spec.when, named and world.session_id(named))
            if isinstance(spec, Fault) and isinstance(spec.when, OnDisk):
                self.trip.at_once = partial(world.machine.begin, self.name, spec)

    @property
    def pending(self) -> bool:
        """Whether it is under way, or will come by itself."""
        if self.over or (self.trip is not None and not self.trip.fired):
            return False
        if isinstance(self.spec.when, After) and self.name not in self.world.ledger.fired:
            before = self.world.act(self.spec.when.after)
            return before.over or before.pending
        return True

    @property
    def stranded(self) -> bool:
        """Whether a client waits for a node that lost its power: no answer ever comes."""
        return not self.over and self._asked is not None and self._asked.state is NodeState.DEAD

    async def give_up(self) -> None:
        """The client of a dead node goes its way, without an answer."""
        self.over = True
        await self.world.ended(self.name)

    @property
    def node(self) -> SimNode:
        """The node it acts on."""
        return self.world.nodes[self.spec.node]

    async def run(self) -> None:
        """The task."""
        with self.world.kernel.ending():
            await self._wait()
            self.world.ledger.fired.setdefault(self.name, self.world.moment())
            if isinstance(self.spec, Action):
                answer = await self._act(self.spec)
                self.world.ledger.answers[self.name] = answer
                await self.world.ended(self.name)
            else:
                await self._befall(self.spec)
            self.over = True

    async def _befall(self, fault: Fault) -> None:
        """Strike as often as the fault says, each time the node has been back for so long. It has ended with
        the last strike, whether or not the node starts again after it."""
        times = fault.times or 1
        for nth in range(1, times + 1):
            if nth > 1:
                await self.world.sleep(fault.again_after_s or 0.0)
            struck = await strike(self.world, self.name, fault)
            if nth == times:
                await self.world.ended(self.name)
            await restart(self.world, fault, struck)

    async def _wait(self) -> None:
        world, when = self.world, self.spec.when
        if self.trip is not None:
            await world.triggers.wait(self.trip)
        elif isinstance(when, After):
            await world.wait_ended(when.after)
            await world.sleep(when.delay_s)
        else:
            await world.kernel.sleep_until(ns_at(self.spec.at_s or 0.0), node=world.kernel.world)

    # --- clients -------------------------------------------------------------------------------------

    async def _act(self, action: Action) -> str:
        if action.do == "start":
            self.node.start_if_down(action.owner)
            return DONE
        if action.do == "poison":
            self._poison(self.world.session_id(action.session or ""))
            return DONE
        self._asked = self.node.node
        if not self.node.booted.is_set():
            await self.node.booted.wait()
            await self.world.kernel.gate("booted", node=self.world.kernel.world)
        engine, self._asked = self.node.engine, self.node.node
        if engine is None:
            return "EngineClosed"
        try:
            return await self._call(engine, action)
        except FencepostError as exc:
            return type(exc).__name__

    async def _call(self, engine: Engine, action: Action) -> str:
        session_id = "" if action.session is None else self.world.session_id(action.session)
        match action.do:
            case "send":
                await engine.send(
                    session_id,
                    action.text or "",
                    delivery=action.delivery or "steer",
                    input_id=action.input,
                )
            case "interrupt":
                return await self._interrupt(engine, session_id)
            case "resume":
                await engine.resume(session_id)
            case "wake":
                engine.coordinator.wake(session_id)
            case "cancel_input":
                assert action.input is not None
                await engine.cancel_input(session_id, action.input)
            case "shutdown":
                await self.node.shut_down()
            case "delete":
                await engine.delete(session_id)
            case "release":
                await engine.release(session_id)
            case "discard":
                await engine.discard(session_id)
            case "start" | "poison":
                raise AssertionError(f"no engine is asked to {action.do}")
        return DONE

    def _poison(self, session_id: str) -> None:
        """A deleted session has no log that could be damaged, so nothing happens to it."""
        world, node = self.world, self.node
        session = world.database.reader().session(session_id)
        if session is None or session.deleted:
            return
        seq = world.database.poison(session_id, created=node.wall.read_ms(world.kernel.now_ns))
        world.trace.record("fault", node.name, "", "poison", name=self.name, session_id=session_id, seq=seq)

    async def _interrupt(self, engine: Engine, session_id: str) -> str:
        world = self.world
        claim = world.database.history.claim_before(session_id, world.trace.count)
        answer = str(await engine.interrupt(session_id))
        world.ledger.interrupts.append(
            InterruptAnswered(
                moment=world.moment(),
                session_id=session_id,
                execution_id=None if claim is None else claim.execution_id,
                answer=answer,
            )
        )
        return answer
