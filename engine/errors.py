"""Every error Fencepost raises, as one tree.

Each docstring says who raises the error, whose fault it is, and what to do next. A broken promise inside
Fencepost itself is an ``AssertionError``: it is a bug to report, not a condition to handle.
"""

from __future__ import annotations


class FencepostError(Exception):
    """The root of the tree; catch it to catch everything that Fencepost raises on purpose."""


# --- configuration and use ---------------------------------------------------------------------------


class ConfigError(FencepostError):
    """`EngineConfig` was built with values that can't work. The caller's fault: the message names the
    field or the relation that is broken, and the sum behind it; mend the configuration."""


class EngineClosed(FencepostError):
    """A verb was called on an engine that is shutting down or closed. Open a new engine."""


class EngineFailed(FencepostError):
    """The one exception that reaches the host when the engine's own machinery broke; ``__cause__`` holds
    the first reason. Sessions are safe in the log; open a new engine on the same file."""


class SessionNotFound(FencepostError):
    """No session has this id in this database. The caller's fault: check the id and the file."""


class SessionExists(FencepostError):
    """`create_session` was given an id that is taken. Leave `session_id` out to get a fresh one."""


class SessionDeleted(FencepostError):
    """The session was deleted; its tombstone refuses reading on, admission and execution."""


class SessionQuarantined(FencepostError):
    """Executing this session failed with a defect, so it isn't executed again until somebody releases or
    discards it. The message carries the reason."""


class NotQuarantined(FencepostError):
    """`release` or `discard` was asked for a session that is in no quarantine. Nothing was changed."""


class InputConflict(FencepostError):
    """An input id was used before for another session or kind. The caller's fault: use a fresh id."""


class InboxFull(FencepostError):
    """The session has `inbox_pending_max` inputs that wait. Try again once some were answered."""


# --- the store ---------------------------------------------------------------------------------------


class StoreError(FencepostError):
    """The database refused or failed. *Nothing was applied*, unless the subclass says otherwise."""


class StoreBusy(StoreError):
    """The write lock couldn't be had within `write_timeout_ms`: another process holds it, perhaps a
    stopped one. Nothing was applied; it is safe to try again."""


class StoreFull(StoreError):
    """The disk or the database's page limit is full. Nothing was applied; make room and try again."""


class StoreReadOnly(StoreError):
    """The database can't be written (permissions, or a read-only file system). Mend that and reopen."""


class StoreIOError(StoreError):
    """The operating system failed a read, write or sync. Nothing was applied; check the disk."""


class StoreInterrupted(StoreError):
    """A statement was interrupted from outside (`sqlite3_interrupt`). Nothing was applied; try again."""


class StoreCorrupt(StoreError):
    """The database is damaged. Restore it from a backup; nothing more is written to it."""


class StoreClosed(StoreError):
    """The store was closed, or its writer died, before the write was taken. Nothing was applied."""


class StoreFileError(StoreError):
    """The file can't be opened as a Fencepost database: missing, a folder, not a database, somebody
    else's, or of a newer schema. The message says which; nothing was created or changed."""


class ConstraintBroken(StoreError):
    """The schema refused a row (a duplicate event id or seq). A bug above the store, or a reused id."""


class RowMalformed(FencepostError):
    """A row says what this version doesn't know (a phase, say): it was written by another version, or by
    hand. Its session is quarantined; others go on."""


class CommitOutcomeUnknown(StoreError):
    """A COMMIT failed and a fresh look couldn't tell whether it was applied. It may have been. An
    execution treats this as a lost claim and leaves the rest to recovery; a client reads and decides."""


class AfterCommitFailed(FencepostError):
    """The write *is applied*, but the caller's own `after_commit` raised (``__cause__``). The caller's
    memory no longer follows the log, so an execution treats this as a lost claim."""


# --- claims ------------------------------------------------------------------------------------------


class ClaimError(FencepostError):
    """A claim command wasn't granted."""


class ClaimHeld(ClaimError):
    """Another live execution holds the claim. Nobody's fault: wait, or ask it to stop."""


class ClaimLost(ClaimError):
    """A fenced command named an execution that doesn't hold the claim any more: it expired, was taken
    over, or was cleared. Whoever gets this writes nothing more; the log belongs to the successor."""


class ClaimCancelling(ClaimError):
    """The claim is held, but an interrupt was accepted or asked for, so running work isn't allowed.
    Neither lost nor failed: the execution goes and settles as interrupted by a user."""


class SettlementFailed(FencepostError):
    """Settlement couldn't finish within `settle_ms_max`, or the store refused it (``__cause__``). The
    claim is left expired where that could be written; recovery settles the session."""


class QuarantineFailed(FencepostError):
    """A defect was found and the quarantine itself couldn't be written. ``__cause__`` is the defect."""


# --- the event log -----------------------------------------------------------------------------------


class EventError(FencepostError):
    """An event can't be stored or read."""


class UnknownEvent(EventError):
    """No event class is registered for this type and version. The log was written by another version of
    Fencepost: use one that knows the type."""


class EventMalformed(EventError):
    """Stored data doesn't fit its event class. The message names the event, the field and the reason."""


class EventTooLarge(EventError):
    """An event exceeds `event_bytes_max`. The caller's fault: shorten the payload."""


class ReplayDiverged(EventError):
    """A replayed event differs from the one stored at its seq, or can't follow it (a gap, a foreign
    session, a reused id). Nothing was changed."""


class SubscriberOverflow(FencepostError):
    """This live subscriber fell behind its bounded buffer and was cut off, alone. Read the log from the
    last seq seen, then subscribe again."""


# --- providers and tools -----------------------------------------------------------------------------


class ProviderFault(FencepostError):
    """The provider broke the rules of its port (a delta before its start, two finishes, a call twice).
    The provider's fault: the step fails with this text; the session goes on by the retry rules."""


class LocationFailed(FencepostError):
    """A session's location isn't known here, or opening it raised (``__cause__``). The session's execution
    fails with this text and its input is parked; `resume` it once the location is mended."""


class ToolError(FencepostError):
    """Raised by a tool for the model to see. Anything else a tool raises is a bug of the tool, and the
    model sees a fixed wording instead.

    `type` is a short machine-readable word, `message` is shown to the model, `retryable` says whether the
    same call may work later, `details` is a JSON value or None.
    """

    def __init__(self, type: str, message: str, *, retryable: bool = False, details: object = None) -> None:
        super().__init__(message)
        self.type = type
        self.message = message
        self.retryable = retryable
        self.details = details
