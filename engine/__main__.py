"""`python -m engine`: look into a database, verify it, or watch a demonstration."""

from __future__ import annotations

import sys

from engine.cli import main

if __name__ == "__main__":
    sys.exit(main())
