"""Driver errors become Fencepost's own at one place."""

from __future__ import annotations

import apsw
import pytest

from engine import errors
from engine.errors import StoreBusy, StoreError
from engine.store import map_error
from engine.store.mapping import MAPPING, own_copy


@pytest.mark.parametrize("kind", MAPPING)
def test_each_listed_error_is_mapped(kind: type[apsw.Error]) -> None:
    """The driver's error becomes the cause, and its text is kept."""
    original = kind("what SQLite said")
    mapped = map_error(original)
    assert type(mapped) is MAPPING[kind][0]
    assert mapped.__cause__ is original
    assert "what SQLite said" in str(mapped)


def test_an_unlisted_error_is_a_store_error() -> None:
    """Whatever else the driver raises is a plain `StoreError`."""
    assert type(map_error(apsw.SQLError("syntax"))) is StoreError


def test_every_kind_of_store_error_is_used_or_raised_elsewhere() -> None:
    """The table leaves out only the kinds that no driver error means by itself."""
    kinds = {
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, StoreError)
    }
    mapped = {kind for kind, _ in MAPPING.values()}
    assert kinds - mapped == {StoreError, errors.StoreFileError, errors.CommitOutcomeUnknown}


@pytest.mark.parametrize("error", [StoreBusy("held"), apsw.BusyError("held")])
def test_callers_share_no_error(error: StoreError | apsw.Error) -> None:
    """Each caller of several that fail together gets an object of its own, with the same cause."""
    first, second = own_copy(error), own_copy(error)
    assert type(first) is type(second) is StoreBusy
    assert first is not second
    assert first.__cause__ is second.__cause__ is error
