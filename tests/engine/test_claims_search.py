"""Every reachable state of two nodes around one claim keeps I1 to I3; and the search fails where it should.

Run with `-s` to see how many states were visited.
"""

from __future__ import annotations

import sys

import attrs
import pytest

from engine.claims import COMMANDS, TABLE, Acquire, Command, Decision, Facts, Granted, Renew, Watched, decide
from engine.errors import ConfigError
from engine.limits import EngineConfig
from engine.records import Claim
from tests.engine.claim_search import Search
from tests.engine.claim_world import FORMER, LATEST, Broken, Decide, World


def searched(world: World, states_min: int) -> Search:
    """Search it all, say how much that was, and see that it wasn't less than it used to be."""
    search = Search(world)
    search.run()
    chosen = attrs.asdict(world, filter=lambda field, value: value != field.default)
    sys.stdout.write(
        f"\n{chosen or 'plain'}: {len(search.reached)} states, {len(search.rows.known)} rows,"
        f" {len(search.rows.cells)} cells, take-overs {search.takeovers}\n"
    )
    assert len(search.reached) >= states_min
    return search


def assert_every_cell_occurred(search: Search) -> None:
    cells = [(phase, command) for phase, row in TABLE.items() for command in row]
    assert len(cells) == 7 * len(COMMANDS)
    assert [cell for cell in cells if cell not in search.rows.cells] == []


# --- what holds --------------------------------------------------------------------------------------


def test_owners_that_are_late_or_crash() -> None:
    """However late an owner is, it has stopped and settled before anybody takes over, in every phase."""
    search = searched(World(), states_min=148_000)
    assert_every_cell_occurred(search)
    assert search.takeovers["expired"] > 0


def test_owners_that_are_suspended() -> None:
    """Where a monotonic clock may stand still, the fence alone keeps a former owner out, in every phase."""
    search = searched(World(lease=5, renew=1, suspends=True), states_min=103_000)
    assert_every_cell_occurred(search)
    assert search.takeovers["expired"] > 0


def test_owners_that_are_punctual() -> None:
    """While owners renew on time and clocks stay in the band, nobody takes over what wasn't freed."""
    search = searched(World(punctual=True), states_min=35_000)
    assert_every_cell_occurred(search)
    assert search.takeovers["freed"] > 0
    assert search.takeovers["expired"] == 0


def test_owners_that_share_an_owner_id() -> None:
    """Two executions under one owner id are kept apart by their execution ids."""
    search = searched(World(shared_owner=True, suspends=True, phases=False), states_min=13_000)
    assert search.takeovers["expired"] > 0


@pytest.mark.parametrize("punctual", [False, True])
def test_clocks_that_stray(punctual: bool) -> None:
    """A row dated far ahead is taken over once it was watched, and never from an owner that renews it."""
    world = World(lease=4, renew=1, band=0, strays=True, phases=False, punctual=punctual)
    assert searched(world, states_min=13_900).takeovers["watched"] > 0


@pytest.mark.parametrize("band", [1, 2, 3])
def test_wider_bands(band: int) -> None:
    """The shortest lease that the rule admits is long enough for any width of the band."""
    world = World(lease=2 + band + 1 + 1 + 1, band=band, punctual=True, phases=False)
    assert searched(world, states_min=3_000).takeovers["expired"] == 0


# --- what must break it ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lease", "skew", "settle", "write_timeout"),
    [
        (6, 1, 1, 1),
        (6, 2, 1, 1),
        (6, 1, 2, 1),
        (6, 1, 1, 2),
        (6, 0, 1, 2),
        (9, 3, 1, 1),
        (9, 2, 1, 3),
        (3, 0, 1, 1),
    ],
)
def test_lease_rule_is_exact(lease: int, skew: int, settle: int, write_timeout: int) -> None:
    """The configuration refuses just those leases under which a punctual owner may be taken over."""
    try:
        EngineConfig(
            lease_ms=lease,
            clock_skew_ms_max=skew,
            clock_rate_error_ppm=0,
            settle_ms_max=settle,
            write_timeout_ms=write_timeout,
        )
        admitted = True
    except ConfigError:
        admitted = False
    world = World(
        lease=lease,
        renew=lease // 3,
        band=skew,
        settle=settle,
        write_timeout=write_timeout,
        punctual=True,
        phases=False,
    )
    if admitted:
        Search(world).run()
    else:
        with pytest.raises(Broken, match="I2: the expired claim of a punctual owner was taken over"):
            Search(world).run()


def test_renewals_counted_from_their_outcome_come_too_late() -> None:
    """A renewal due an interval after the last *outcome* adds that write's delay: the lease is too short."""
    with pytest.raises(Broken, match="I2: the expired claim of a punctual owner"):
        Search(World(punctual=True, phases=False, renews_from_outcome=True)).run()


@pytest.mark.parametrize("margin", [0, 1])
def test_margin_must_hold_skew_and_settlement(margin: int) -> None:
    """With a margin below skew and settlement together, a late owner still settles under its successor."""
    with pytest.raises(Broken, match="I2: the former owner may still be settling"):
        Search(World(margin=margin, phases=False)).run()


def test_handle_without_a_latch() -> None:
    """A suspended execution that tries again after a loss writes again once its wall clock steps back."""
    with pytest.raises(Broken, match="I3: a handle that was lost wrote again"):
        Search(World(latches=False, suspends=True, phases=False)).run()


def renews_the_expired(row: Claim | None, facts: Facts, command: Command, now_ms: int) -> Decision:
    if row is not None and not isinstance(command, Acquire):
        row = attrs.evolve(row, expires_at=max(row.expires_at, now_ms + 1))
    return decide(row, facts, command, now_ms)


def forgets_the_execution(row: Claim | None, facts: Facts, command: Command, now_ms: int) -> Decision:
    if row is not None and isinstance(command, Renew) and command.fence.owner_id == row.owner_id:
        command = Renew(fence=row.fence, lease_ms=command.lease_ms)
    return decide(row, facts, command, now_ms)


def takes_over_early(row: Claim | None, facts: Facts, command: Command, now_ms: int) -> Decision:
    return decide(row, facts, command, now_ms + isinstance(command, Acquire))


def keeps_the_generation(row: Claim | None, facts: Facts, command: Command, now_ms: int) -> Decision:
    decision = decide(row, facts, command, now_ms)
    if isinstance(decision, Granted) and decision.previous is not None and decision.row is not None:
        return Granted(row=attrs.evolve(decision.row, generation=facts.generation), previous=row)
    return decision


def overlooks_the_version(row: Claim | None, facts: Facts, command: Command, now_ms: int) -> Decision:
    if row is not None and isinstance(command, Acquire) and command.watched is not None:
        seen = Watched(execution_id=row.execution_id, version=row.version)
        command = attrs.evolve(command, watched=seen)
    return decide(row, facts, command, now_ms)


@pytest.mark.parametrize(
    ("broken", "invariant"),
    [
        (renews_the_expired, "I3: "),
        (forgets_the_execution, "I1: .* granted to a former execution"),
        (takes_over_early, "I2: "),
        (keeps_the_generation, "I1: an acquire didn't add one"),
        (overlooks_the_version, "I2: .* taken over live"),
    ],
)
def test_broken_rules_are_found(broken: Decide, invariant: str) -> None:
    """Rules with one thing wrong break an invariant in the search."""
    strays = broken is overlooks_the_version
    shared = broken is forgets_the_execution
    with pytest.raises(Broken, match=invariant):
        Search(World(decide=broken, strays=strays, shared_owner=shared, phases=False)).run()


def test_a_broken_search_shows_the_way() -> None:
    """What breaks is reported with the states that lead there from the beginning."""
    with pytest.raises(Broken) as caught:
        Search(World(latches=False, suspends=True, phases=False)).run()
    first, *way = str(caught.value).splitlines()
    assert first.startswith("I3: ")
    assert way[0] == "None"
    assert any(f"execution_id='{LATEST}'" in line for line in way)
    assert not any(f"execution_id='{FORMER}'" in line for line in way)
