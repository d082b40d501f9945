"""The commands of `python -m engine`."""

from __future__ import annotations

from engine.cli.commands import BAD_INPUT, BREACHED, CLEAN, main

__all__ = ["BAD_INPUT", "BREACHED", "CLEAN", "main"]
