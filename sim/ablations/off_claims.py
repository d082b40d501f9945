"""Ablations of the claim: its fence, its lease, its handle.

Each function is a context manager that switches one protection off while it is entered, through a function
that the engine looks up anyway; nothing in the engine knows of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import attrs

from engine import claims, keeping, limits, log
from engine.claims import Acquire, Clear, Command, Decision, Facts, Granted
from engine.doorbell import Bell
from engine.events import ExecutionStarted, Stored
from engine.lease import Handle
from engine.limits import EngineConfig
from engine.node import Node
from engine.plan import Plan
from engine.ports import Transaction
from engine.records import Claim, Fence
from engine.recovery import Recovery
from sim.ablations.patching import patched

NEVER_S = 10.0**7
"""Longer than any run, and yet a number: a shield has to be bounded."""


@contextlib.contextmanager
def fence_by_execution_id() -> Iterator[None]:
    """`claims._why_lost` compares the owner id and the expiry, and not the execution id."""

    def why_lost(row: Claim, fence: Fence, now_ms: int) -> str | None:
        if row.owner_id != fence.owner_id:
            return f"it belongs to owner {row.owner_id}, not to {fence.owner_id}"
        return f"it expired at {row.expires_at}" if claims.is_free(row, now_ms) else None

    with patched(claims, "_why_lost", why_lost):
        yield


@contextlib.contextmanager
def fence_by_expiry() -> Iterator[None]:
    """`claims._why_lost` compares the ids, and whether the holder gave the claim away, but not the expiry."""
    original = claims._why_lost

    def why_lost(row: Claim, fence: Fence, now_ms: int) -> str | None:
        return original(row, fence, min(now_ms, row.expires_at - 1))

    with patched(claims, "_why_lost", why_lost):
        yield


@contextlib.contextmanager
def fresh_execution_id() -> Iterator[None]:
    """`claims._taken_over` keeps the execution id that it finds, and the generation that belongs to it."""
    take_over, append = claims._taken_over, log.append

    def taken_over(row: Claim, facts: Facts, command: Acquire, now_ms: int) -> Claim:
        taken = take_over(row, facts, command, now_ms)
        return attrs.evolve(taken, execution_id=row.execution_id, generation=row.generation)

    def append_as_held(
        tx: Transaction,
        session_id: str,
        plan: Plan[object],
        nonce: str,
        execution_id: str | None,
        config: EngineConfig,
    ) -> tuple[Stored, ...]:
        row = tx.claim(session_id)
        if row is not None and any(isinstance(event, ExecutionStarted) for event in plan.events):
            execution_id = row.execution_id
        return append(tx, session_id, plan, nonce, execution_id, config)

    with patched(claims, "_taken_over", taken_over), patched(log, "append", append_as_held):
        yield


@contextlib.contextmanager
def lost_stays_lost() -> Iterator[None]:
    """`Handle.lose` latches nothing: a handle that saw its claim lost may try again, and goes on working."""
    with patched(Handle, "lose", lambda self, reason: None):
        yield


@contextlib.contextmanager
def renewal_at_a_third() -> Iterator[None]:
    """`keeping.keep` waits for the whole lease before it renews."""
    original = keeping._rung_before

    async def rung_before(node: Node, bell: Bell, due: float) -> bool:
        return await original(node, bell, due + node.config.lease_ms * 2 / 3 / 1000)

    with patched(keeping, "_rung_before", rung_before):
        yield


@contextlib.contextmanager
def lease_rule() -> Iterator[None]:
    """`limits.lease_rule` finds nothing wrong with any lease."""
    with patched(limits, "lease_rule", lambda config: None):
        yield


@contextlib.contextmanager
def scope_before_the_lease() -> Iterator[None]:
    """`Handle._after` sets a deadline that never comes: the holder doesn't stop by itself."""
    with patched(Handle, "_after", lambda self, sent: sent + NEVER_S):
        yield


@contextlib.contextmanager
def fenced_clear() -> Iterator[None]:
    """`claims.decide` grants `Clear` whatever row it finds."""
    original = claims.decide

    def decide(row: Claim | None, facts: Facts, command: Command, now_ms: int) -> Decision:
        if isinstance(command, Clear):
            return Granted(row=None)
        return original(row, facts, command, now_ms)

    with patched(claims, "decide", decide):
        yield


@contextlib.contextmanager
def interrupt_seen_by_successor() -> Iterator[None]:
    """`claims._taken_over` forgets the interrupt that was asked of the former holder."""
    original = claims._taken_over

    def taken_over(row: Claim, facts: Facts, command: Acquire, now_ms: int) -> Claim:
        return attrs.evolve(original(row, facts, command, now_ms), interrupt_seq=None)

    with patched(claims, "_taken_over", taken_over):
        yield


@contextlib.contextmanager
def future_dated_claims() -> Iterator[None]:
    """`Recovery._watch` watches no claim that seems alive."""
    with patched(Recovery, "_watch", lambda self, live: None):
        yield
