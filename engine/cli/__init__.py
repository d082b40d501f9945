"""The commands of `python -m engine`."""

from __future__ import annotations

from engine.cli.commands import main
from engine.cli.usage import BAD_INPUT, BREACHED, CLEAN, INTERRUPTED, NOT_DONE

__all__ = ["BAD_INPUT", "BREACHED", "CLEAN", "INTERRUPTED", "NOT_DONE", "main"]
