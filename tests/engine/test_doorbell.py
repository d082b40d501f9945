"""Doorbells: they coalesce, and lose nothing between a read and a wait."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from engine.doorbell import ELSEWHERE, Bell, Doorbells
from tests.engine.hand_clock import HandClock


async def rung(bell: Bell) -> bool:
    """Whether a wait ends now."""
    ended = trio.Event()

    async def wait() -> None:
        await bell.wait()
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return ended.is_set()


@pytest.mark.trio
async def test_a_ring_before_the_wait_is_kept() -> None:
    """Who reads, and is rung meanwhile, doesn't wait."""
    bell = Bell(HandClock())
    assert not await rung(bell)
    bell.ring()
    assert await rung(bell)


@pytest.mark.trio
async def test_many_rings_are_one_and_clear_forgets_only_earlier_ones() -> None:
    """Clear before the read: what is rung after it counts."""
    bell = Bell(HandClock())
    for _ in range(64):
        bell.ring()
    bell.clear()
    assert not await rung(bell)
    bell.ring()
    assert await rung(bell)
    assert await rung(bell), "a ring stays until it is cleared"


@pytest.mark.trio
async def test_bells_ring_for_their_session_alone() -> None:
    """A commit rings its session; a change elsewhere rings everybody."""
    bells = Doorbells(HandClock())
    with (
        bells.bell("a") as a,
        bells.bell("a") as again,
        bells.bell("b") as b,
        bells.bell(ELSEWHERE) as elsewhere,
    ):
        bells.ring("a")
        assert [await rung(bell) for bell in (a, again, b, elsewhere)] == [True, True, False, False]
        bells.ring_all()
        assert [await rung(bell) for bell in (b, elsewhere)] == [True, True]
    bells.ring("a")
    bells.ring_all()


@pytest.mark.trio
async def test_a_bell_is_taken_down_with_its_block() -> None:
    """Nothing is kept of those who left, also when they left by an error; the others still ring."""
    bells = Doorbells(HandClock())
    with bells.bell("a") as stays:
        with pytest.raises(ValueError, match="out"), bells.bell("a"):
            raise ValueError("out")
        bells.ring("a")
        assert await rung(stays)
    assert bells._bells == {}


@pytest.mark.trio
async def test_a_waiter_wakes_when_it_is_rung_later() -> None:
    """A wait that has begun ends with the ring."""
    bell = Bell(HandClock())
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bell.wait)
            await trio.testing.wait_all_tasks_blocked()
            bell.ring()
