"""The protections that can be switched off, in one table."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

import attrs

from engine.shape import nearest
from sim.ablations import off_claims, off_commits, off_turns, worlds
from sim.scenario import Scenario
from sim.tape import Tape


def no_trouble(tape: Tape) -> AbstractContextManager[None]:
    """Most worlds hold all their trouble in their scenario."""
    return contextlib.nullcontext()


@attrs.frozen(kw_only=True)
class Source:
    """Where worlds come from: `make(tape, name)` draws one; `trouble(tape)` is what a scenario can't say."""

    make: Callable[[Tape, str], Scenario]
    trouble: Callable[[Tape], AbstractContextManager[None]] = no_trouble

    @property
    def name(self) -> str:
        """How reports call it."""
        return self.make.__name__


@attrs.frozen(kw_only=True)
class Ablation:
    """A protection: its name and words, what switches it off, the invariants that must see it (those that say
    most come first), and the worlds to look in."""

    name: str
    protection: str
    off: Callable[[], AbstractContextManager[None]]
    invariants: tuple[str, ...]
    sources: tuple[Source, ...]


def _ablation(
    protection: str,
    off: Callable[[], AbstractContextManager[None]],
    invariants: str,
    *made: Callable[[Tape, str], Scenario],
    trouble: Callable[[Tape], AbstractContextManager[None]] = no_trouble,
) -> Ablation:
    sources = tuple(Source(make=make, trouble=trouble) for make in made)
    return Ablation(
        name=off.__name__,
        protection=protection,
        off=off,
        invariants=tuple(invariants.split()),
        sources=sources,
    )


GENERATED = (Source(make=worlds.generated), Source(make=worlds.generated_with_shared_owner))
"""Worlds that weren't made for any ablation."""

ABLATIONS: tuple[Ablation, ...] = (
    _ablation(
        "the fence compares the execution id",
        off_claims.fence_by_execution_id,
        "I1 I3",
        worlds.slept_with_shared_owner,
    ),
    _ablation("the fence compares the expiry", off_claims.fence_by_expiry, "I3", worlds.slept_alone),
    _ablation(
        "a take-over draws a fresh execution id",
        off_claims.fresh_execution_id,
        "I4 I5 I6 I3 I1",
        worlds.slept_with_shared_owner,
    ),
    _ablation("a lost handle stays lost", off_claims.lost_stays_lost, "I3", worlds.slept_and_set_back),
    _ablation(
        "memory follows the commit before listeners are told",
        off_commits.after_commit_before_notification,
        "I9",
        worlds.many_events,
    ),
    _ablation(
        "the step's state is replaced only by a commit",
        off_commits.state_replaced_by_commit,
        "I9",
        worlds.many_events,
    ),
    _ablation(
        "settlement runs in a shield", off_turns.settlement_in_a_shield, "I7", worlds.cancelled_in_a_step
    ),
    _ablation(
        "settlement goes by the durable phase",
        off_turns.settlement_by_phase,
        "I12",
        worlds.cancelled_in_a_step,
    ),
    _ablation(
        "closing events and phase are one transaction",
        off_turns.settlement_in_one_transaction,
        "I4 I5 I6 I7",
        worlds.cut_while_settling,
    ),
    _ablation(
        "a claim is renewed at a third of its lease",
        off_claims.renewal_at_a_third,
        "I2",
        worlds.quiet_for_long,
    ),
    _ablation(
        "a lease that breaks the lease rule is refused", off_claims.lease_rule, "I2", worlds.short_lease
    ),
    _ablation(
        "the work's scope ends before the lease",
        off_claims.scope_before_the_lease,
        "I3",
        worlds.stalled_before_a_start,
    ),
    _ablation("clearing is fenced", off_claims.fenced_clear, "I2", worlds.slept_before_clearing),
    _ablation(
        "a tool's result is fenced", off_commits.fenced_tool_result, "I6 I1", worlds.slept_during_a_tool
    ),
    _ablation(
        "a tool starts after its call is committed",
        off_commits.tool_after_its_call,
        "I6",
        worlds.many_events,
    ),
    _ablation(
        "a take-over is counted before anything resumes",
        off_turns.attempts_counted_first,
        "I16",
        worlds.brought_down_again,
    ),
    _ablation(
        "promotion is part of the claim's transaction",
        off_commits.promotion_in_the_claims_transaction,
        "I1 I11 I12",
        worlds.slept_before_promoting,
    ),
    _ablation("a doorbell rung during a read is kept", off_commits.doorbell_kept, "I14", worlds.followed),
    _ablation(
        "a successor sees the interrupt that was asked for",
        off_claims.interrupt_seen_by_successor,
        "I12",
        worlds.died_after_a_request_to_stop,
    ),
    _ablation("parked input stays parked", off_turns.parked_stays_parked, "I11", worlds.woken_while_parked),
    _ablation(
        "listeners are told after the commit",
        off_commits.notification_after_commit,
        "I14",
        worlds.many_events,
    ),
    _ablation(
        "a step is retried only before visible output",
        off_turns.retry_before_visible_output,
        "I13",
        worlds.cut_off_after_text,
    ),
    _ablation(
        "works beside one that broke a batch run again",
        off_commits.innocents_run_again,
        "I9 I8 I7 I3 I4 I6 I16",
        worlds.busy_node,
        trouble=worlds.database_full_at_times,
    ),
    _ablation(
        "a claim is cleared where nothing was seen pending",
        off_turns.clear_where_nothing_was_pending,
        "I11",
        worlds.sent_at_the_end,
    ),
    _ablation(
        "a future-dated claim can be taken up",
        off_claims.future_dated_claims,
        "I7 I16",
        worlds.dated_far_ahead,
    ),
)


def named(name: str) -> Ablation:
    """The ablation of that name. Raises `LookupError` that names the nearest one, or all if none is near."""
    for ablation in ABLATIONS:
        if ablation.name == name:
            return ablation
    hint = nearest(name, [ablation.name for ablation in ABLATIONS])
    raise LookupError(f"there is no ablation {name!r}: {hint}")
