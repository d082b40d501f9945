"""A session of a real database as a scenario, so that what happened once can be interrupted everywhere.

`replies` reads what the provider and the tools answered, `moments` what clients did and what befell the
nodes, `redact` takes out what mustn't leave the house, `made` puts it together and tries it.
"""

from __future__ import annotations

from sim.from_log.made import Made, scenario_from_log
from sim.from_log.redact import Redaction

__all__ = ["Made", "Redaction", "scenario_from_log"]
