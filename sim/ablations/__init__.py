"""Ablations: one protection of the engine switched off, and worlds in which the simulator must see it.

A check that never fails proves nothing. Each ablation is an exact change made through a function or attribute
that the engine has anyway; some invariant must break with it, and must hold without it on the same seeds.
"""

from __future__ import annotations

from sim.ablations.known import ABLATIONS, GENERATED, Ablation, Source, named
from sim.ablations.search import Finding, search

__all__ = ["ABLATIONS", "GENERATED", "Ablation", "Finding", "Source", "named", "search"]
