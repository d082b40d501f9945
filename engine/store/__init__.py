"""What is remembered: the store over SQLite, and the only place that knows the driver."""

from __future__ import annotations

from engine.store.batch import BatchResult, Item, run_batch, settle_hop
from engine.store.mapping import map_error
from engine.store.readonly import ReadOnlyStore, open_readonly
from engine.store.sqlite import create_memory, open_connection, restore_memory
from engine.store.threaded import ThreadedStore, open_store
from engine.store.transaction import SqliteReader, SqliteTransaction

__all__ = [
    "BatchResult",
    "Item",
    "ReadOnlyStore",
    "SqliteReader",
    "SqliteTransaction",
    "ThreadedStore",
    "create_memory",
    "map_error",
    "open_connection",
    "open_readonly",
    "open_store",
    "restore_memory",
    "run_batch",
    "settle_hop",
]
