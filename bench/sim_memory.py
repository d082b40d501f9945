"""Whether memory stays flat however many worlds run: `python -m bench.sim_memory [RUNS]`, 100,000 by default.

One process runs generated worlds, a seed each, and prints what it holds (resident set, on Linux) ten times.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sim.fuzz import run_seed

RUNS = 100_000
LOOKS = 10


def resident_mib() -> float:
    """What this process holds in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main(runs: int) -> None:
    """Run them, and look."""
    broken = 0
    for seed in range(runs):
        broken += bool(run_seed(seed).failures)
        if (seed + 1) % max(1, runs // LOOKS) == 0:
            print(f"{seed + 1:>8} runs: {resident_mib():.0f} MiB, {broken} broken", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
