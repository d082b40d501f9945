"""Durable agent sessions for Trio.

The names below are the public face. They are looked up on first use, so that importing a pure part of the
package costs neither the event loop nor the database.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine import errors as errors
    from engine.api import Engine as Engine
    from engine.api import Session as Session
    from engine.errors import FencepostError as FencepostError
    from engine.errors import ToolError as ToolError
    from engine.events import Stored as Stored
    from engine.limits import EngineConfig as EngineConfig
    from engine.ports import Listener as Listener
    from engine.ports import Provider as Provider
    from engine.ports import Tool as Tool
    from engine.ports import ToolContext as ToolContext
    from engine.reading import Synced as Synced
    from engine.records import Admission as Admission
    from engine.records import InterruptAnswer as InterruptAnswer
    from engine.records import Message as Message
    from engine.service import open_engine as open_engine
    from engine.turns import TurnResult as TurnResult

__all__ = [
    "Admission",
    "Engine",
    "EngineConfig",
    "FencepostError",
    "InterruptAnswer",
    "Listener",
    "Message",
    "Provider",
    "Session",
    "Stored",
    "Synced",
    "Tool",
    "ToolContext",
    "ToolError",
    "TurnResult",
    "errors",
    "open_engine",
]

# a library leaves it to its host what becomes of its records
logging.getLogger("fencepost").addHandler(logging.NullHandler())

_MODULES = {
    "engine.api": ("Engine", "Session"),
    "engine.errors": ("FencepostError", "ToolError"),
    "engine.events": ("Stored",),
    "engine.limits": ("EngineConfig",),
    "engine.ports": ("Listener", "Provider", "Tool", "ToolContext"),
    "engine.reading": ("Synced",),
    "engine.records": ("Admission", "InterruptAnswer", "Message"),
    "engine.service": ("open_engine",),
    "engine.turns": ("TurnResult",),
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("engine.errors")
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
