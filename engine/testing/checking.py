"""Checking what a test left in its database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.api import Engine
from engine.ports import Reader
from engine.store.memory import MemoryDatabase, MemoryStore
from engine.testing.world import World
from engine.verify import Findings, read_session, session_ids, verify_session


def verify(of: Engine | World) -> Mapping[str, Findings]:
    """What `engine.verify` finds in the database of a test engine or a world, by session id.

    It may be asked at any time, also after the engine was closed.
    """
    return _database(of).read(_verify)


def assert_sound(of: Engine | World) -> None:
    """Raise `AssertionError` with one line for each broken invariant; what is pending is no fault."""
    said = [line for session_id, found in verify(of).items() for line in _lines(session_id, found)]
    if said:
        raise AssertionError("the log is not sound:\n" + "\n".join(said))


def _database(of: Engine | World) -> MemoryDatabase:
    if isinstance(of, World):
        return of.database
    store = of.node.log.store
    if not isinstance(store, MemoryStore):
        raise TypeError("this engine runs on a file: check it by `python -m engine verify FILE`")
    return store.database


def _verify(tx: Reader) -> dict[str, Findings]:
    return {session_id: verify_session(read_session(tx, session_id)) for session_id in session_ids(tx)}


def _lines(session_id: str, found: Findings) -> Iterator[str]:
    for breach in found.breaches:
        where = "" if breach.seq is None else f" at seq {breach.seq}"
        yield f"{breach.invariant} in {session_id}{where}: {breach.sentence}"
    for each in found.unreadable:
        yield f"unreadable in {session_id}: {each.reason}"
