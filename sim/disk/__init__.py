"""The simulated disk: files in memory that lose, at a power loss, what wasn't synced; and SQLite on them."""
