"""Writes that wait for the writer, and the moment from which one can't be withdrawn."""

from __future__ import annotations

import threading

import attrs
import trio

from engine.errors import StoreClosed
from engine.store.batch import Item


@attrs.define(kw_only=True, eq=False)
class Ticket(Item):
    """A work and the task that waits for its outcome."""

    task: trio.lowlevel.Task
    waited_ms: int = 0


class WorkQueue:
    """Tickets in the order of arrival, between the tasks that write and the one thread that takes.

    A ticket is here until it is taken, withdrawn, expired or refused; whoever removes it answers for it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tickets: dict[Ticket, None] = {}
        self._closed: StoreClosed | None = None

    def __len__(self) -> int:
        return len(self._tickets)

    @property
    def closed(self) -> StoreClosed | None:
        """Why nothing is taken any more."""
        return self._closed

    def put(self, ticket: Ticket) -> None:
        """Add a ticket. Raises `StoreClosed`."""
        with self._changed:
            if self._closed is not None:
                raise refusal(self._closed)
            self._tickets[ticket] = None
            self._changed.notify()

    def withdraw(self, ticket: Ticket) -> bool:
        """Take a ticket back; False if it was taken, and its outcome will come."""
        with self._changed:
            if ticket not in self._tickets:
                return False
            del self._tickets[ticket]
            return True

    def wait(self, timeout_s: float) -> None:
        """Block until there is something to take, the queue is closed, or the time is over."""
        with self._changed:
            if not self._tickets and self._closed is None:
                self._changed.wait(timeout_s)

    def take(self, works_max: int) -> list[Ticket]:
        """Remove the first tickets: from now on they can't be withdrawn."""
        with self._changed:
            taken = list(self._tickets)[:works_max]
            for ticket in taken:
                del self._tickets[ticket]
            return taken

    def age(self, waited_ms: int) -> None:
        """Note that everybody has waited longer."""
        with self._changed:
            for ticket in self._tickets:
                ticket.waited_ms += waited_ms

    def expire(self, timeout_ms: int) -> list[Ticket]:
        """Remove the tickets that have waited `timeout_ms`."""
        with self._changed:
            late = [ticket for ticket in self._tickets if ticket.waited_ms >= timeout_ms]
            for ticket in late:
                del self._tickets[ticket]
            return late

    def close(self, reason: StoreClosed) -> list[Ticket]:
        """Take nothing more in; returns the tickets that were never taken. The first reason stays."""
        with self._changed:
            self._closed = self._closed or reason
            refused = list(self._tickets)
            self._tickets.clear()
            self._changed.notify()
            return refused


def refusal(reason: StoreClosed) -> StoreClosed:
    """The error for one caller; callers never share one."""
    error = StoreClosed(*reason.args)
    error.__cause__ = reason.__cause__
    return error
