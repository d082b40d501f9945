"""The event log: publish in one transaction, bring memory up to it, then tell listeners; and read it back."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import attrs

from engine import claims, codec, projections
from engine.changes import ChangeFeed
from engine.doorbell import Doorbells
from engine.errors import AfterCommitFailed, ClaimLost, CommitOutcomeUnknown
from engine.events import Event, Stored
from engine.lease import Handle
from engine.limits import EngineConfig
from engine.live import LiveFeed
from engine.metrics import Metrics
from engine.plan import Plan, PlanFunction, command
from engine.ports import Listener, Reader, Store, System, Transaction
from engine.reading import LogReader
from engine.records import Claim, EventRow

V = TypeVar("V")

logger = logging.getLogger("fencepost.log")


class Stage(enum.StrEnum):
    """What a fenced publication is, which decides the phases that allow it."""

    RUNNING = "running"
    SETTLING = "settling"
    CLEARING = "clearing"  #: drops the claim; the command in the plan's `commit` is its own fence


@attrs.frozen(kw_only=True)
class Published(Generic[V]):
    """What one publication committed: the stored events, the claim's row afterwards, the plan's value."""

    stored: tuple[Stored, ...]
    row: Claim | None
    value: V


class Log:
    """The log of one node. It observes its store, so that every commit rings doorbells and feeds `live`."""

    def __init__(
        self,
        store: Store,
        system: System,
        config: EngineConfig,
        listeners: Sequence[Listener] = (),
        metrics: Metrics | None = None,
    ) -> None:
        self.store = store
        self.doorbells = Doorbells(system.clock)
        self.live = LiveFeed(system.clock, config.live_buffer_max)
        self.changes = ChangeFeed(system.clock)
        self.metrics = metrics or Metrics()
        self._system = system
        self._config = config
        self._listeners = list(listeners)
        self._closed = False
        store.observe(self)

    # --- StoreObserver -------------------------------------------------------------------------------

    def committed(self, stored: Sequence[Stored]) -> None:
        """Ring for each session that got events, then feed the live channel, in commit order."""
        for session_id in dict.fromkeys(item.event.session_id for item in stored):
            self.doorbells.ring(session_id)
        for item in stored:
            self.live.feed(item)
        self.changes.note(stored)
        self.metrics.committed(stored)

    def changed_elsewhere(self) -> None:
        """Ring everybody: another process committed something."""
        self.doorbells.ring_all()
        self.changes.sweep()

    def close(self) -> None:
        """End every live subscription, and wake every follower to find the engine closed."""
        self._closed = True
        self.live.close()
        self.changes.close()
        self.doorbells.ring_all()

    # --- publishing ----------------------------------------------------------------------------------

    async def publish(
        self,
        session_id: str,
        plan: PlanFunction[V],
        *,
        claim: Handle | None = None,
        stage: Stage = Stage.RUNNING,
        execution_id: str | None = None,
        after_commit: Callable[[Published[V]], None] | None = None,
        label: str = "",
    ) -> Published[V]:
        """Commit what `plan` decides, run `after_commit` before anyone else can run, then tell listeners.

        With a `claim`, the transaction starts by renewing it under its fence. A cancellation while
        listeners are told propagates; the events stay committed and memory is already right.

        Raises `ClaimLost` (the handle is dead from then on), `ClaimCancelling`, what the plan raises, or a
        `StoreError`; in each case nothing was applied, but for `AfterCommitFailed` and
        `CommitOutcomeUnknown`, which also cost the claim.
        """
        if claim is not None:
            claim.check()
            execution_id = claim.fence.execution_id
        nonce = self._system.ids.new("evt")
        sent = self._system.clock.monotonic()
        config = self._config

        def work(tx: Transaction) -> Published[V]:
            row = None
            if claim is not None and stage is not Stage.CLEARING:
                settling = stage is Stage.SETTLING
                check = claims.Work(fence=claim.fence, lease_ms=config.lease_ms, settling=settling)
                row = command(tx, session_id, check).row
            decided = plan(tx, row)
            stored = append(tx, session_id, decided, nonce, execution_id, config)
            return Published(stored=stored, row=tx.claim(session_id), value=decided.value)

        def hop(published: Published[V]) -> None:
            if claim is not None:
                claim.renewed(sent)
                claim.follow(published.row)
            if after_commit is not None:
                after_commit(published)

        published = await self._write(work, hop, claim, label)
        await self._notify(published.stored)
        return published

    async def _write(
        self,
        work: Callable[[Transaction], Published[V]],
        hop: Callable[[Published[V]], None],
        claim: Handle | None,
        label: str,
    ) -> Published[V]:
        try:
            return await self.store.write(work, hop, label=label)
        except (ClaimLost, AfterCommitFailed, CommitOutcomeUnknown) as exc:
            if claim is not None:
                claim.lose(str(exc))
            raise

    async def _notify(self, stored: Sequence[Stored]) -> None:
        clock = self._system.clock
        bound = self._config.listener_ms_max / 1000
        for item in stored:
            for listener in self._listeners:
                with clock.scope(clock.monotonic() + bound) as scope:
                    try:
                        await listener(item)
                    except Exception:
                        self.metrics.count(Metrics.LISTENER_FAILURES)
                        logger.exception("a listener failed", extra={"seq": item.seq, "type": item.type})
                if scope.cancelled_caught:
                    self.metrics.count(Metrics.LISTENER_FAILURES)
                    logger.warning(
                        "a listener took longer than listener_ms_max",
                        extra={"seq": item.seq, "type": item.type},
                    )

    # --- reading -------------------------------------------------------------------------------------

    def read(
        self,
        session_id: str,
        *,
        after: int = -1,
        follow: bool = False,
        look: Callable[[Reader], None] | None = None,
    ) -> LogReader:
        """A reader of the session's stored events with seq greater than `after`; see `LogReader`."""
        return LogReader(
            self.store,
            self.doorbells,
            session_id,
            after=after,
            follow=follow,
            closed=lambda: self._closed,
            page=self._config.page_events_max,
            look=look,
        )


def append(
    tx: Transaction,
    session_id: str,
    plan: Plan[V],
    nonce: str,
    execution_id: str | None,
    config: EngineConfig,
) -> tuple[Stored, ...]:
    """Project and insert the plan's events, apply its operational change; return them as stored."""
    latest = tx.latest_seq(session_id)
    stored = tuple(
        Stored(
            event_id=f"{nonce}_{index}",
            seq=latest + 1 + index,
            created=tx.now_ms,
            execution_id=execution_id,
            event=event,
            metadata=None if plan.metadata is None else codec.clean_json(dict(plan.metadata)),
            location=plan.location,
        )
        for index, event in enumerate(plan.events)
    )
    for item in stored:
        projections.project(tx, item)
    plan.commit(tx, stored)
    for item in stored:
        assert item.event.session_id == session_id, f"{item.type} names a foreign session"
        tx.append_event(row_of(item, config))
        tx.tell(item)
    return stored


def row_of(item: Stored, config: EngineConfig) -> EventRow:
    """The row that stores an event. Raises `EventTooLarge` or `EventError`."""
    event: Event = item.event
    return EventRow(
        event_id=item.event_id,
        session_id=event.session_id,
        seq=item.seq,
        type=event.type,
        version=event.version,
        created=item.created,
        execution_id=item.execution_id,
        data=codec.encode_event(event, bytes_max=config.event_bytes_max),
        metadata=None if item.metadata is None else codec.encode_json(item.metadata),
        location=item.location,
    )
