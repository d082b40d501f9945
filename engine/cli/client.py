"""A client of a database that nodes may be at work on: it asks for things, and executes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import attrs
import trio

from engine.api import Engine
from engine.claims import is_free
from engine.cli.usage import WAIT_S
from engine.errors import ClaimHeld
from engine.limits import EngineConfig
from engine.ports import ProviderEvent, Reader
from engine.records import Claim, InterruptAnswer, Request
from engine.service import run_engine
from engine.store import open_store
from engine.system import real_system

T = TypeVar("T")

WRITE_TIMEOUT_MS = 5_000
"""How long a command waits for the write lock at most."""


class _NoModel:
    """The provider of a client."""

    def open(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[ProviderEvent]]:
        raise AssertionError("a client executes nothing")


@contextlib.asynccontextmanager
async def open_client(path: str, *, wait_s: int = WAIT_S) -> AsyncIterator[Engine]:
    """An engine over an existing file that starts no execution, whatever rings for one.

    `wait_s` bounds `interrupt` and `delete`. Raises a `StoreError`.
    """
    wait_ms = wait_s * 1000
    # The wait for the lock ends first, so that "requested" always means that the request is written.
    config = EngineConfig(interrupt_ms_max=wait_ms, write_timeout_ms=min(WRITE_TIMEOUT_MS, wait_ms // 2))
    system = real_system()
    async with (
        open_store(
            path,
            clock_now_ms=system.clock.now_ms,
            write_timeout_ms=config.write_timeout_ms,
            poll_ms=config.poll_ms,
            batch_works_max=config.batch_works_max,
            create=False,
        ) as store,
        run_engine(store, system, provider=_NoModel(), config=config, sweep=False) as engine,
    ):
        # A coordinator that was shut down ignores every ring: what is asked for here is left to the nodes.
        await engine.coordinator.shutdown()
        yield engine


def ask(path: str, question: Callable[[Engine], Awaitable[T]], *, wait_s: int = WAIT_S) -> T:
    """Open the file as a client, ask, close. Raises what `open_client` and the question raise."""

    async def asked() -> T:
        async with open_client(path, wait_s=wait_s) as engine:
            return await question(engine)

    return trio.run(asked)


# --- stopping a session ------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Stop:
    """What came of asking a session to stop.

    `answer` is None if it was to be deleted. `claim` is who holds it still, and `holder_gone` whether that
    claim's time has run out, so that nobody is there to obey. `parked` counts its parked inputs.
    """

    answer: InterruptAnswer | None
    claim: Claim | None
    holder_gone: bool
    remaining_ms: int  #: of the claim's lease; 0 without a claim
    parked: int
    deleted: bool

    @property
    def stopped(self) -> bool:
        """Whether whoever held the session has let go of it."""
        return self.claim is None


async def interrupt(engine: Engine, session_id: str) -> Stop:
    """Interrupt the session, and look what holds it then. Raises `SessionNotFound`, or a `StoreError`."""
    answer = await engine.interrupt(session_id)
    stop = await _look(engine, session_id, answer)
    if answer in (InterruptAnswer.SETTLED, InterruptAnswer.NOT_RUNNING):
        return attrs.evolve(stop, claim=None)  # one that is there was acquired after the answer
    return stop if stop.claim is not None else attrs.evolve(stop, answer=InterruptAnswer.SETTLED)


async def delete(engine: Engine, session_id: str) -> Stop:
    """Delete the session within the client's wait. Raises as `interrupt` does."""
    node = engine.node
    with node.clock.scope(node.deadline(node.config.interrupt_ms_max)):
        with contextlib.suppress(ClaimHeld):  # told as what holds it
            await engine.delete(session_id)
    return await _look(engine, session_id, None)


async def _look(engine: Engine, session_id: str, answer: InterruptAnswer | None) -> Stop:
    now = engine.node.clock.now_ms()

    def work(tx: Reader) -> Stop:
        claim, session = tx.claim(session_id), tx.session(session_id)
        return Stop(
            answer=answer,
            claim=claim,
            holder_gone=claim is not None and is_free(claim, now),
            remaining_ms=0 if claim is None else claim.expires_at - now,
            parked=tx.parked_count(session_id),
            deleted=session is None or session.deleted,
        )

    return await engine.node.log.store.read(work)
