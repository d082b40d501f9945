"""A run as one page: what happened on which node, by whose clock, and the moment something broke.

`story` tells a judged run as plain data, `near` finds the nearest run that held, `page` and `perfetto` write.
"""

from __future__ import annotations

from sim.report.near import Near, nearest_that_held
from sim.report.page import page
from sim.report.perfetto import trace_events
from sim.report.story import Story, tell

__all__ = ["Near", "Story", "nearest_that_held", "page", "tell", "trace_events"]
