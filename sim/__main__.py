"""`python -m sim`: the simulator's commands."""

from __future__ import annotations

import click

from sim.cli.ablate import ablate
from sim.cli.check import check
from sim.cli.demo import demo
from sim.cli.explore import explore
from sim.cli.from_log import from_log
from sim.cli.fuzz import fuzz
from sim.cli.matrix import matrix
from sim.cli.replay import replay
from sim.cli.report import report
from sim.cli.run import run
from sim.cli.shrink import shrink

COMMANDS = (ablate, check, demo, explore, from_log, fuzz, matrix, replay, report, run, shrink)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run Fencepost's engine in a deterministic world, and say what held.

    Begin with `run FILE`; docs/simulator.md tells how to think in it. All but `demo` take --json.

    Exit status: 0 all held, 1 something broke, 2 bad input.
    """


for command in COMMANDS:
    main.add_command(command)

if __name__ == "__main__":
    main()
