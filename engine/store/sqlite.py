"""Opening a Fencepost database: checked first, then hardened, then brought to the current schema.

A file is looked at without touching it before anything is done with it, so that a foreign, newer or missing
one is refused and stays as it was. It is never opened but through SQLite: closing any other descriptor of
the file would drop every lock this process holds on it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from urllib.parse import quote

import apsw

from engine.errors import StoreBusy, StoreError, StoreFileError
from engine.store.mapping import map_error
from engine.store.queries import MIGRATIONS, SCHEMA_VERSION

APPLICATION_ID = 0x46503031
"""Written into the header of every Fencepost database ("FP01")."""

SQLITE_VERSION_MIN = (3, 51, 3)
"""Older ones may lose commits: two connections can reset and checkpoint the WAL at the same moment."""

STATEMENTS_CACHED = 512
WAL_BYTES_MAX = 64 * 1024 * 1024
"""A WAL that grew beyond this is cut back at the next checkpoint that no reader holds up."""

BACKOFF_MS = (1, 1, 2, 3, 5, 8, 13, 20)
"""How long to wait between attempts to get a lock; the last one repeats."""

_MEMORY_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE

FilePath = str | os.PathLike[str]
Sleep = Callable[[float], None]


# --- waiting for locks -------------------------------------------------------------------------------


def backoff_ms() -> Iterator[int]:
    """Endless waits between attempts, in milliseconds."""
    yield from BACKOFF_MS
    while True:
        yield BACKOFF_MS[-1]


def busy_error(waited_ms: int) -> StoreBusy:
    """The error of a caller that waited in vain."""
    return StoreBusy(f"another process has held the write lock for {waited_ms} ms; is it stopped?")


def retry_busy(action: Callable[[], None], *, sleep: Sleep, timeout_ms: int) -> None:
    """Do `action` until it isn't refused for a lock. Raises `StoreBusy` after `timeout_ms` of waiting."""
    waited_ms = 0
    for pause_ms in backoff_ms():
        try:
            return action()
        except apsw.BusyError as exc:
            if waited_ms >= timeout_ms:
                raise busy_error(waited_ms) from exc
            sleep(pause_ms / 1000)
            waited_ms += pause_ms
    raise AssertionError("the waits never end")


def begin_immediate(connection: apsw.Connection, *, sleep: Sleep, timeout_ms: int) -> None:
    """Take the write lock, unless this connection holds it. Raises `StoreBusy` or another `StoreError`."""
    if connection.in_transaction:
        return
    try:
        retry_busy(lambda: _execute(connection, "BEGIN IMMEDIATE"), sleep=sleep, timeout_ms=timeout_ms)
    except apsw.Error as exc:
        raise map_error(exc) from exc


def _execute(connection: apsw.Connection, sql: str) -> None:
    connection.execute(sql)


# --- looking without touching ------------------------------------------------------------------------


def check_sqlite_version(version: str | None = None) -> None:
    """Raise `StoreError` if the SQLite in use is one that can lose commits."""
    version = version or apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")) < SQLITE_VERSION_MIN:
        needed = ".".join(map(str, SQLITE_VERSION_MIN))
        raise StoreError(f"SQLite {version} can lose commits in WAL mode; install apsw with SQLite {needed}")


def check_file(path: FilePath, *, create: bool) -> None:
    """Raise `StoreFileError` unless `path` is a Fencepost database, or may become one.

    Nothing is created or changed, not even beside the file.
    """
    size = _file_size(path)
    if not size:
        if create:
            return
        raise StoreFileError(f"{path} {'does not exist' if size is None else 'is empty, not a database'}")
    try:
        application_id, version = _read_header(path)
    except apsw.NotADBError as exc:
        raise StoreFileError(f"{path} is not a database") from exc
    except apsw.Error as exc:
        raise StoreFileError(f"{path} can't be read: {exc}") from exc
    if application_id != APPLICATION_ID or version < 1:
        raise StoreFileError(f"{path} is a database, but not one of Fencepost; nothing was changed")
    _check_version(path, version)


def _check_version(path: FilePath, version: int) -> None:
    if version > SCHEMA_VERSION:
        raise StoreFileError(
            f"{path} has schema version {version}, and this Fencepost knows {SCHEMA_VERSION}: use a newer one"
        )


def _file_size(path: FilePath) -> int | None:
    """Bytes of the file, None if there is none. Raises `StoreFileError` for what can't be a database."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        if os.path.isdir(os.path.dirname(os.path.abspath(path))):
            return None
        raise StoreFileError(f"{path} can't be created: its folder does not exist") from None
    except OSError as exc:
        raise StoreFileError(f"{path} can't be opened: {exc.strerror}") from exc
    if stat.S_ISDIR(status.st_mode):
        raise StoreFileError(f"{path} is a folder, not a database file")
    if not stat.S_ISREG(status.st_mode):
        raise StoreFileError(f"{path} is not a regular file")
    return status.st_size


def _read_header(path: FilePath) -> tuple[int, int]:
    """Application id and schema version, both from the first page.

    The file is read as immutable: no lock, no WAL, no file beside it. That is enough to tell whose it is,
    since a new database gets its first page before it goes to WAL; what may be newer is checked again later.
    """
    connection = connect(uri(path, "immutable=1"), apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        # Another process may be writing the pages that this first one counts: shorter isn't yet damaged.
        connection.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)
        return _number(connection, "PRAGMA application_id"), _number(connection, "PRAGMA user_version")
    finally:
        connection.close()


def uri(path: FilePath, query: str) -> str:
    """The file as a URI filename of SQLite, with `query` behind it."""
    return f"file://{quote(os.fsencode(os.path.abspath(path)))}?{query}"


def _number(connection: apsw.Connection, pragma: str) -> int:
    value = connection.execute(pragma).fetchall()[0][0]
    assert isinstance(value, int)
    return value


# --- opening -----------------------------------------------------------------------------------------


def connect(name: str, flags: int, driver: type[apsw.Connection] = apsw.Connection) -> apsw.Connection:
    """A bare connection, neither checked nor hardened."""
    return driver(name, flags=flags, statementcachesize=STATEMENTS_CACHED)


def open_connection(
    path: FilePath,
    *,
    create: bool = True,
    sleep: Sleep,
    timeout_ms: int,
    query_only: bool = False,
    driver: type[apsw.Connection] = apsw.Connection,
) -> apsw.Connection:
    """A checked, hardened connection to the database at `path`, with the current schema.

    A new file is private to its user (mode 0600), and any number of processes may create it at once.
    `query_only` gives one that can't write; `driver` is a subclass that injects faults. Raises
    `StoreFileError` with nothing changed, or another `StoreError`.
    """
    check_sqlite_version()
    check_file(path, create=create)
    if create and _file_size(path) is None:
        _create_private(path)
    try:
        connection = connect(os.path.abspath(path), apsw.SQLITE_OPEN_READWRITE, driver)
        with _closing_on_error(connection):
            _prepare(connection, path, sleep=sleep, timeout_ms=timeout_ms)
            if query_only:
                make_read_only(connection, timeout_ms=timeout_ms)
            return connection
    except apsw.Error as exc:
        raise map_error(exc) from exc


@contextlib.contextmanager
def _closing_on_error(connection: apsw.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _create_private(path: FilePath) -> None:
    """Make an empty file that only its user can read.

    `mknod` never holds a descriptor: closing one could drop the locks of another thread of this process
    that has opened the file in between.
    """
    try:
        with contextlib.suppress(FileExistsError):
            os.mknod(path, 0o600 | stat.S_IFREG)
    except (AttributeError, PermissionError, OSError) as exc:
        if isinstance(exc, OSError) and exc.errno not in (errno.EPERM, errno.ENOTSUP, errno.EINVAL):
            raise StoreFileError(f"{path} can't be created: {exc.strerror}") from exc
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _prepare(connection: apsw.Connection, path: FilePath, *, sleep: Sleep, timeout_ms: int) -> None:
    def attempt() -> None:
        with _rolled_back_on_error(connection):
            migrate(connection, path)
        check_schema(connection, path)
        harden(connection)

    retry_busy(attempt, sleep=sleep, timeout_ms=timeout_ms)


@contextlib.contextmanager
def _rolled_back_on_error(connection: apsw.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(apsw.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise


def migrate(connection: apsw.Connection, path: FilePath = ":memory:") -> None:
    """Bring the database to the current schema, each version in a transaction of its own.

    The version is read again under the write lock, since another process may be doing the same.
    """
    while _number(connection, "PRAGMA user_version") != SCHEMA_VERSION:
        connection.execute("BEGIN IMMEDIATE")
        version = _number(connection, "PRAGMA user_version")
        _check_version(path, version)
        if version < SCHEMA_VERSION:
            connection.execute(MIGRATIONS[version])
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute("COMMIT")


def check_current(connection: apsw.Connection, path: FilePath) -> None:
    """Refuse a file that isn't of the current schema, without migrating it. Raises `StoreFileError`."""
    version = _number(connection, "PRAGMA user_version")
    _check_version(path, version)
    if version < SCHEMA_VERSION:
        raise StoreFileError(f"{path} has the older schema version {version}: open it once with an engine")
    check_schema(connection, path)


def check_schema(connection: apsw.Connection, path: FilePath) -> None:
    """Refuse a file with our name on it whose tables aren't ours."""
    missing = _expected_schema() - _schema(connection)
    if missing:
        names = ", ".join(sorted(name for name, _ in missing))
        raise StoreFileError(f"{path} is not a whole Fencepost database: {names} missing or different")


def _schema(connection: apsw.Connection) -> set[tuple[str, str]]:
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    return {(str(name), str(sql)) for name, sql in rows}


def _expected_schema() -> set[tuple[str, str]]:
    connection = connect(":memory:", _MEMORY_FLAGS)
    try:
        migrate(connection)
        return _schema(connection)
    finally:
        connection.close()


# --- hardening, per connection and after the checks --------------------------------------------------


def harden(connection: apsw.Connection) -> None:
    """Make a connection to a file durable and distrustful."""
    make_durable(connection)
    distrust_file(connection)


def make_durable(connection: apsw.Connection) -> None:
    """What was acknowledged survives a power loss; waiting for locks is done by the caller."""
    connection.set_busy_timeout(0)
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchall()[0][0]
    if mode != "wal":
        raise StoreError(f"this file system can't keep a write-ahead log (journal mode {mode}); use another")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}").fetchall()


def distrust_file(connection: apsw.Connection) -> None:
    """Whoever may write the file gets no code run by it, and damage is found early."""
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)


def make_read_only(connection: apsw.Connection, *, timeout_ms: int) -> None:
    """Reads hardly ever wait, but the recovery of a WAL by another process holds them up."""
    connection.execute("PRAGMA query_only = ON")
    connection.set_busy_timeout(timeout_ms)


# --- in memory ---------------------------------------------------------------------------------------


def create_memory(driver: type[apsw.Connection] = apsw.Connection) -> apsw.Connection:
    """A fresh database in memory, with the current schema."""
    check_sqlite_version()
    connection = connect(":memory:", _MEMORY_FLAGS, driver)
    migrate(connection)
    distrust_file(connection)
    return connection


def restore_memory(
    template: apsw.Connection, driver: type[apsw.Connection] = apsw.Connection
) -> apsw.Connection:
    """A copy of an in-memory database, in a tenth of the time that running the schema takes."""
    connection = connect(":memory:", _MEMORY_FLAGS, driver)
    with connection.backup("main", template, "main") as backup:
        backup.step()
    distrust_file(connection)
    return connection
