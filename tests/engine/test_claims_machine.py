"""Several nodes with wrong clocks ask for everything, against a naive model written from the prose rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.claims import (
    Acquire,
    Clear,
    Command,
    Decision,
    Detach,
    Drop,
    Expire,
    Facts,
    Granted,
    HandOver,
    Keep,
    Lost,
    Open,
    Renew,
    RequestInterrupt,
    Step,
    Update,
    Watched,
    Work,
    decide,
)
from engine.errors import ClaimCancelling, ClaimHeld, SessionDeleted, SessionQuarantined
from engine.records import Claim, Fence, Phase

NODES = ("a", "b", "c")
LEASE = 30
NEVER = Fence(session_id="ses_1", execution_id="exe_none", owner_id="own_none", generation=0)

node_names = st.sampled_from(NODES)
running_phases = ("ready", "unknown", "continue", "safe")


@attrs.define
class Model:
    """One session as a bag of variables, in the words of the rules and without their table."""

    claim: dict[str, Any] | None = None
    generation: int = 0
    deleted: bool = False
    quarantined: bool = False
    steps: int = 0

    def alive(self, now: int) -> bool:
        assert self.claim is not None
        return self.claim["until"] not in ("handed over", "given up") and self.claim["until"] > now

    def mine(self, fence: Fence, now: int) -> bool:
        holder = None if self.claim is None else (self.claim["execution"], self.claim["owner"])
        return holder == (fence.execution_id, fence.owner_id) and self.alive(now)

    def being_interrupted(self) -> bool:
        assert self.claim is not None
        return self.claim["phase"] not in running_phases or self.claim["asked"] is not None

    def acquire(self, execution: str, owner: str, now: int, watched: Watched | None) -> str:
        if self.deleted:
            return "deleted"
        if self.quarantined:
            return "quarantined"
        if self.claim is not None and self.alive(now):
            seen = (self.claim["execution"], self.claim["version"])
            if watched is None or (watched.execution_id, watched.version) != seen:
                return "held"
        self.generation += 1
        if self.claim is None:
            self.claim = {"phase": "ready", "message": None, "asked": None, "created": now, "version": 0}
        self.claim |= {"execution": execution, "owner": owner, "until": now + LEASE}
        self.claim["version"] += 1
        return "granted"

    def renew(self, fence: Fence, now: int) -> str:
        if not self.mine(fence, now):
            return "lost"
        assert self.claim is not None
        self.claim["until"] = max(self.claim["until"], now + LEASE)
        self.claim["version"] += 1
        return "granted"

    def work(self, fence: Fence, now: int, settling: bool) -> str:
        if not self.mine(fence, now):
            return "lost"
        assert self.claim is not None
        stopped = self.claim["phase"] == "cancelled" if settling else self.being_interrupted()
        return "cancelling" if stopped else self.renew(fence, now)

    def update(self, fence: Fence, now: int, phase: str, message: str | None) -> str:
        if not self.mine(fence, now):
            return "lost"
        assert self.claim is not None
        was = self.claim["phase"]
        if was == "cancelled" or (was == "cancelling" and phase not in ("cancelling", "cancelled")):
            return "cancelling"
        self.claim |= {"phase": phase, "message": message}
        return self.renew(fence, now)

    def request_interrupt(self, execution: str, seq: int) -> str:
        if self.claim is None or self.claim["execution"] != execution:
            return "lost"
        self.claim["asked"] = max(seq, -1 if self.claim["asked"] is None else self.claim["asked"])
        return "granted"

    def clear(self, fence: Fence, now: int) -> str:
        if not self.mine(fence, now):
            return "lost"
        assert self.claim is not None
        if self.claim["phase"] != "cancelled" and self.being_interrupted():
            return "cancelling"
        self.claim = None
        return "granted"

    def drop(self, fence: Fence, now: int) -> str:
        if not self.mine(fence, now):
            return "lost"
        self.claim = None
        return "granted"

    def free(self, fence: Fence, now: int, until: str) -> str:
        if not self.mine(fence, now):
            return "lost"
        assert self.claim is not None
        if until == "handed over" and self.being_interrupted():
            return "cancelling"
        self.claim["until"] = until
        self.claim["version"] += 1
        return "granted"


def word(decision: Decision) -> str:
    if isinstance(decision, Granted):
        return "granted"
    if isinstance(decision, Lost):
        return "lost"
    return {
        ClaimHeld: "held",
        ClaimCancelling: "cancelling",
        SessionDeleted: "deleted",
        SessionQuarantined: "quarantined",
    }[decision.error]


def has_row(machine: ClaimMachine) -> bool:
    """Most rules wait for a row: without one everything is lost, which a few of them are enough to show."""
    return machine.row is not None


class ClaimMachine(RuleBasedStateMachine):
    """The real rules and the model are asked the same and must answer and end up the same."""

    @initialize(starts=st.tuples(*[st.integers(100, 160)] * len(NODES)))
    def begin(self, starts: tuple[int, ...]) -> None:
        self.row: Claim | None = None
        self.model = Model()
        self.clocks = dict(zip(NODES, starts, strict=True))
        self.fences = dict.fromkeys(NODES, NEVER)
        self.former: list[Fence] = [NEVER]
        self.watched: Watched | None = None
        self.executions = 0

    def facts(self) -> Facts:
        model = self.model
        return Facts(deleted=model.deleted, quarantined=model.quarantined, generation=model.generation)

    def ask(self, node: str, command: Command, expect: Callable[[], str]) -> Granted | None:
        decision = decide(self.row, self.facts(), command, self.clocks[node])
        assert word(decision) == expect()
        if not isinstance(decision, Granted):
            return None
        self.row = decision.row
        return decision

    @rule(node=node_names, by=st.integers(-8, 8))
    def clock_moves(self, node: str, by: int) -> None:
        self.clocks[node] += by

    @rule(by=st.one_of(st.integers(1, 6), st.just(LEASE)))
    def time_passes(self, by: int) -> None:
        self.clocks = {node: now + by for node, now in self.clocks.items()}

    @rule()
    def look(self) -> None:
        row, self.watched = self.row, None
        if row is not None:
            self.watched = Watched(execution_id=row.execution_id, version=row.version)

    @rule(node=node_names, owner=st.sampled_from(["own", "shared"]), watching=st.booleans())
    def acquire(self, node: str, owner: str, watching: bool) -> None:
        self.executions += 1
        execution, owner = f"exe_{self.executions}", owner if owner == "shared" else f"own_{node}"
        watched, before = self.watched if watching else None, self.row
        command = Acquire(
            session_id="ses_1", execution_id=execution, owner_id=owner, lease_ms=LEASE, watched=watched
        )
        now = self.clocks[node]
        done = self.ask(node, command, lambda: self.model.acquire(execution, owner, now, watched))
        if done is not None:
            assert done.previous == before
            assert done.row is not None
            self.former.append(self.fences[node])
            self.fences[node] = done.row.fence

    def fence(self, node: str, draw: st.DataObject) -> Fence:
        """Mostly the holder's, else the asking node's own, a former one, or one with a wrong owner."""
        kind = draw.draw(st.sampled_from(["holder"] * 6 + ["own", "former", "wrong owner"]))
        holder = self.fences[node] if self.row is None else self.row.fence
        if kind == "former":
            return draw.draw(st.sampled_from(self.former))
        if kind == "wrong owner":
            return attrs.evolve(holder, owner_id="own_wrong")
        return holder if kind == "holder" else self.fences[node]

    @rule(node=node_names, draw=st.data())
    def renew(self, node: str, draw: st.DataObject) -> None:
        fence = self.fence(node, draw)
        self.ask(node, Renew(fence=fence, lease_ms=LEASE), lambda: self.model.renew(fence, self.clocks[node]))

    @precondition(has_row)
    @rule(node=node_names, draw=st.data(), settling=st.booleans())
    def work(self, node: str, draw: st.DataObject, settling: bool) -> None:
        fence = self.fence(node, draw)
        command = Work(fence=fence, lease_ms=LEASE, settling=settling)
        self.ask(node, command, lambda: self.model.work(fence, self.clocks[node], settling))

    def update(self, node: str, fence: Fence, phase: Phase, step: Step, message: str | None) -> None:
        command = Update(fence=fence, phase=phase, step=step, lease_ms=LEASE)
        now = self.clocks[node]
        self.ask(node, command, lambda: self.model.update(fence, now, phase.value, message))

    @precondition(lambda self: self.row is not None and self.row.phase is not Phase.READY)
    @rule(node=node_names, draw=st.data())
    def nothing_more_is_owed(self, node: str, draw: st.DataObject) -> None:
        self.update(node, self.fence(node, draw), Phase.SAFE, Detach(), None)

    @precondition(has_row)
    @rule(node=node_names, draw=st.data())
    def a_step_is_owed(self, node: str, draw: st.DataObject) -> None:
        self.update(node, self.fence(node, draw), Phase.CONTINUE, Detach(), None)

    @precondition(has_row)
    @rule(node=node_names, draw=st.data())
    def a_step_opens(self, node: str, draw: st.DataObject) -> None:
        self.model.steps += 1
        message = f"msg_{self.model.steps}"
        step = Open(message_id=message, seq=self.model.steps)
        self.update(node, self.fence(node, draw), Phase.UNKNOWN, step, message)

    @precondition(has_row)
    @rule(node=node_names, draw=st.data())
    def an_interrupt_is_accepted(self, node: str, draw: st.DataObject) -> None:
        message = None if self.model.claim is None else self.model.claim["message"]
        self.update(node, self.fence(node, draw), Phase.CANCELLING, Keep(), message)

    @precondition(lambda self: self.row is not None and self.row.phase not in running_phases)
    @rule(node=node_names, draw=st.data())
    def an_interrupt_is_settled(self, node: str, draw: st.DataObject) -> None:
        self.update(node, self.fence(node, draw), Phase.CANCELLED, Detach(), None)

    @rule(node=node_names, draw=st.data(), seq=st.integers(0, 9))
    def request_interrupt(self, node: str, draw: st.DataObject, seq: int) -> None:
        seen = self.fence(node, draw).execution_id
        command = RequestInterrupt(session_id="ses_1", execution_id=seen, seq=seq)
        self.ask(node, command, lambda: self.model.request_interrupt(seen, seq))

    @rule(node=node_names, draw=st.data())
    def clear(self, node: str, draw: st.DataObject) -> None:
        fence = self.fence(node, draw)
        self.ask(node, Clear(fence=fence), lambda: self.model.clear(fence, self.clocks[node]))

    @precondition(lambda self: self.row is not None and self.row.version > 4)
    @rule(node=node_names, draw=st.data())
    def quarantine(self, node: str, draw: st.DataObject) -> None:
        fence = self.fence(node, draw)
        done = self.ask(node, Drop(fence=fence), lambda: self.model.drop(fence, self.clocks[node]))
        self.model.quarantined |= done is not None

    @precondition(lambda self: self.model.quarantined)
    @rule()
    def release(self) -> None:
        self.model.quarantined = False

    @precondition(lambda self: self.row is None and self.model.generation > 1)
    @rule()
    def delete(self) -> None:
        self.model.deleted = True

    @precondition(has_row)
    @rule(node=node_names, draw=st.data())
    def hand_over(self, node: str, draw: st.DataObject) -> None:
        fence, now = self.fence(node, draw), self.clocks[node]
        self.ask(node, HandOver(fence=fence), lambda: self.model.free(fence, now, "handed over"))

    @precondition(has_row)
    @rule(node=node_names, draw=st.data())
    def expire(self, node: str, draw: st.DataObject) -> None:
        fence, now = self.fence(node, draw), self.clocks[node]
        self.ask(node, Expire(fence=fence), lambda: self.model.free(fence, now, "given up"))

    @invariant()
    def row_is_what_the_model_says(self) -> None:
        """Row and model agree in every column."""
        if self.row is None:
            assert self.model.claim is None
            return
        row, until = self.row, {0: "handed over", 1: "given up"}
        assert row.generation == self.model.generation
        assert self.model.claim == {
            "phase": row.phase.value,
            "message": row.assistant_message_id,
            "asked": row.interrupt_seq,
            "created": row.created_at,
            "version": row.version,
            "execution": row.execution_id,
            "owner": row.owner_id,
            "until": until.get(row.expires_at, row.expires_at),
        }


ClaimMachine.TestCase.settings = settings(
    max_examples=200, stateful_step_count=50, deadline=None, derandomize=True, database=None
)
TestClaimMachine = ClaimMachine.TestCase
