"""Loads the named statements of `sql/queries.sql` and the numbered migrations beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)
_MIGRATION = re.compile(r"^(\d{4})_[a-z_]+\.sql$")


def parse_queries(text: str) -> Mapping[str, str]:
    """The statements of a file of `-- name: …` blocks, by name, without their comments.

    The second line of a block is its description, so a block without one is an assertion error, as is a
    name that occurs twice.
    """
    parts = _NAME.split(text)
    queries: dict[str, str] = {}
    for name, block in zip(parts[1::2], parts[2::2], strict=True):
        description, _, sql = block.strip().partition("\n")
        assert description.startswith("-- "), f"the query {name} has no description"
        assert name not in queries, f"the query {name} is there twice"
        queries[name] = sql.strip()
    return MappingProxyType(queries)


def parse_migrations(files: Mapping[str, str]) -> tuple[str, ...]:
    """The scripts of files named `0001_….sql`, `0002_….sql` …, in order, the first being version 1."""
    numbered = {int(match[1]): text for name, text in files.items() if (match := _MIGRATION.match(name))}
    assert sorted(numbered) == list(range(1, len(numbered) + 1)), f"migrations have gaps: {sorted(numbered)}"
    return tuple(numbered[version] for version in sorted(numbered))


def _sql_files() -> dict[str, str]:
    folder = resources.files("engine.store") / "sql"
    return {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".sql")}


QUERIES = parse_queries(_sql_files()["queries.sql"])
MIGRATIONS = parse_migrations(_sql_files())
SCHEMA_VERSION = len(MIGRATIONS)
