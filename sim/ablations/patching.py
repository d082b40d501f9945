"""Changing one thing of the engine for a while, and putting it back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType


@contextlib.contextmanager
def patched(owner: type | ModuleType, name: str, replacement: object) -> Iterator[None]:
    """Inside, `owner.name` is `replacement`; afterwards it is the very object that it was before."""
    before = vars(owner)[name]
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, before)
