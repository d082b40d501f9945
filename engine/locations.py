"""Locations: what a session's `location` selects, opened once and shared by the sessions that use it.

A context manager must be left by the task that entered it, so each open location has a task of its own, which
holds it until the last user left.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import attrs
import jsonschema
import trio

from engine.codec import decode_json, encode_json
from engine.errors import ConfigError, EventError, LocationFailed
from engine.ports import Clock, Provider, Tool

logger = logging.getLogger("fencepost.locations")


@attrs.frozen(kw_only=True)
class Services:
    """The provider and the tools that a location offers."""

    provider: Provider
    tools: Mapping[str, Tool]


def services(provider: Provider, tools: Sequence[Tool] = ()) -> Services:
    """`Services` with the tools by name.

    Raises `ConfigError` for what isn't a provider or a tool, a name that is used twice, a broken JSON Schema.
    """
    if isinstance(provider, type) or not callable(getattr(provider, "open", None)):
        raise ConfigError(f"{provider!r} is no provider: it needs to be an object with `open(request)`")
    named: dict[str, Tool] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            raise ConfigError(f"{tool!r} is no tool: wrap its handler in `Tool(name=…, …)`")
        if tool.name in named:
            raise ConfigError(f"two tools are named {tool.name!r}; give each a name of its own")
        try:
            broken = _fault_of_schema(encode_json(tool.schema))
        except EventError as exc:
            raise ConfigError(f"the schema of tool {tool.name!r} isn't JSON: {exc}") from exc
        if broken is not None:
            raise ConfigError(f"the schema of tool {tool.name!r} is broken: {broken}")
        named[tool.name] = tool
    return Services(provider=provider, tools=named)


@functools.lru_cache(maxsize=1_000)
def _fault_of_schema(schema: bytes) -> str | None:
    """What is wrong with a JSON Schema. Kept, since each opening of a location asks again, and it is slow."""
    try:
        jsonschema.Draft202012Validator.check_schema(decode_json(schema))
    except jsonschema.SchemaError as exc:
        return str(exc.message)
    return None


OpenLocation = Callable[[str], AbstractAsyncContextManager[Services]]
"""Opens a named location; entered once while sessions use it, left when the last of them is done."""


@attrs.define(eq=False)
class _Place:
    """One location, open or being opened. `opened` is set once `services` or `error` is known."""

    users: int = 0
    opened: trio.Event = attrs.field(factory=trio.Event)
    empty: trio.Event = attrs.field(factory=trio.Event)
    closed: trio.Event = attrs.field(factory=trio.Event)
    services: Services | None = None
    error: Exception | None = None


class Locations:
    """The locations of one node. Sessions without a location get `default`."""

    def __init__(
        self, nursery: trio.Nursery, clock: Clock, default: Services, open_location: OpenLocation | None
    ) -> None:
        self._nursery = nursery
        self._clock = clock
        self._default = default
        self._open = open_location
        self._places: dict[str, _Place] = {}
        self._held: dict[int, tuple[str, _Place]] = {}  #: by number, those that are closing included
        self._opened = 0

    @contextlib.asynccontextmanager
    async def use(self, location: str | None) -> AsyncIterator[Services]:
        """The services of a location while the block lasts. Raises `LocationFailed`."""
        if location is None or self._open is None:
            if location is not None:
                raise LocationFailed(f"location {location!r} isn't known: this engine was opened without any")
            yield self._default
            return
        place = self._enter(location, self._open)
        try:
            await place.opened.wait()
            await self._clock.checkpoint()
            if place.services is None:
                raise LocationFailed(f"location {location!r} can't be opened: {place.error}") from place.error
            yield place.services
        finally:
            self._leave(location, place)

    def held(self) -> tuple[str, ...]:
        """Names of the locations that are open, being opened or being closed."""
        return tuple(name for name, _ in self._held.values())

    async def wait_closed(self) -> None:
        """Wait until all are closed; their users leave by themselves."""
        while self._held:
            _, place = next(iter(self._held.values()))
            await place.closed.wait()
            await self._clock.checkpoint()

    def _enter(self, location: str, opener: OpenLocation) -> _Place:
        place = self._places.get(location)
        if place is None:
            place = self._places[location] = _Place()
            self._opened += 1
            number = self._opened
            self._held[number] = (location, place)
            self._nursery.start_soon(
                self._hold, number, location, place, opener, name=f"location/{location}/{number}"
            )
        place.users += 1
        return place

    def _leave(self, location: str, place: _Place) -> None:
        place.users -= 1
        if place.users == 0:
            place.empty.set()
            # whoever comes next opens it afresh, even while this one is still being closed
            if self._places.get(location) is place:
                del self._places[location]

    @trio.lowlevel.enable_ki_protection
    async def _hold(self, number: int, location: str, place: _Place, opener: OpenLocation) -> None:
        try:
            await self._clock.checkpoint()
            async with opener(location) as place.services:
                place.opened.set()
                await place.empty.wait()
                await self._clock.checkpoint()
        except Exception as exc:
            place.error = exc
            if place.services is not None:
                logger.exception("closing a location failed", extra={"location": location})
        finally:
            del self._held[number]
            place.opened.set()
            place.closed.set()
