"""A story in the JSON trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing read.

Each lane is a process; leases are complete events (`X`) on a thread for each session, marks are instants
(`i`), bands are complete events, and each node's clock error is a counter (`C`). Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.records import JSON
from sim.report.story import CLIENTS, PROVIDER, STORE, Story

MARKS_THREAD, BANDS_THREAD = 1, 2
FIRST_LEASE_THREAD = 10


def trace_events(story: Story) -> dict[str, JSON]:
    """The whole trace: `{"traceEvents": […], "displayTimeUnit": "ms", "otherData": {…}}`."""
    lanes = {name: number for number, name in enumerate(_lanes(story), start=1)}
    return {
        "traceEvents": [*_names(story, lanes), *_spans(story, lanes), *_instants(story, lanes)],
        "displayTimeUnit": "ms",
        "otherData": {"scenario": story.scenario, "verdict": story.verdict, "digest": story.digest},
    }


def _lanes(story: Story) -> list[str]:
    return [CLIENTS, *(f"node {name}" for name in story.nodes), STORE, PROVIDER]


def _lane(story: Story, lane: str) -> str:
    return f"node {lane}" if lane in story.nodes else lane


def _names(story: Story, lanes: dict[str, int]) -> Iterator[JSON]:
    for lane, pid in lanes.items():
        yield _meta("process_name", pid, 0, {"name": lane})
        yield _meta("process_sort_index", pid, 0, {"sort_index": pid})
        yield _meta("thread_name", pid, MARKS_THREAD, {"name": "what happened"})
        if lane.startswith("node "):
            yield _meta("thread_name", pid, BANDS_THREAD, {"name": "standing still"})
            for number, session in enumerate(story.sessions):
                name = {"name": f"lease of {session}"}
                yield _meta("thread_name", pid, FIRST_LEASE_THREAD + number, name)


def _meta(name: str, pid: int, tid: int, args: JSON) -> JSON:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


def _spans(story: Story, lanes: dict[str, int]) -> Iterator[JSON]:
    for lease in story.leases:
        thread = FIRST_LEASE_THREAD + story.sessions.index(lease.session)
        args = {
            "changes": [[ms, changes] for ms, _, changes in lease.changes],
            "taken_over": lease.taken_over,
        }
        pid = lanes[f"node {lease.node}"]
        yield _span(lease.execution, "lease", pid, thread, lease.ms, lease.until_ms, args)
    for band in story.bands:
        pid = lanes[f"node {band.node}"]
        yield _span(band.kind, "fault", pid, BANDS_THREAD, band.ms, band.until_ms, {})


def _span(name: str, category: str, pid: int, tid: int, ms: float, until_ms: float, args: JSON) -> JSON:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": pid,
        "tid": tid,
        "ts": _us(ms),
        "dur": _us(until_ms - ms),
        "args": args,
    }


def _instants(story: Story, lanes: dict[str, int]) -> Iterator[JSON]:
    for mark in story.marks:
        args = {"task": mark.task, "execution": mark.execution, "entry": mark.index, "detail": mark.detail}
        pid = lanes[_lane(story, mark.lane)]
        yield _instant(f"{mark.kind}: {mark.label}", mark.kind, pid, "t", mark.ms, args)
    for broken in story.broken:
        ms = story.end_ms if broken.ms is None else broken.ms
        yield _instant(f"BROKEN {broken.rule}", "broken", 1, "g", ms, {"sentence": broken.sentence})
    for name, readings in story.clocks.items():
        for ms, reading in zip(story.stops, readings, strict=True):
            yield {
                "ph": "C",
                "name": "wall clock minus true time (ms)",
                "pid": lanes[f"node {name}"],
                "tid": 0,
                "ts": _us(ms),
                "args": {"ms": reading - int(ms)},
            }


def _instant(name: str, category: str, pid: int, scope: str, ms: float, args: JSON) -> JSON:
    return {
        "ph": "i",
        "name": name,
        "cat": category,
        "pid": pid,
        "tid": MARKS_THREAD,
        "ts": _us(ms),
        "s": scope,
        "args": args,
    }


def _us(ms: float) -> float:
    return round(ms * 1000, 3)
