"""Observes a run for the search over schedules: which steps it took, and what each touched.

Everything is learnt from outside, on what a world offers anyway: the picker of the tape, the trace, the calls
of the database, gates that park. What can't be told to be harmless touches everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sim.database import SimDatabase
from sim.explore.footprints import EVERYTHING, Footprint, Noted, Touched, all_rows
from sim.explore.steps import Chosen, Step, Token, steps_of, token_of
from sim.gate import Gate
from sim.ledger import Opened, ToolStarted
from sim.project import Project
from sim.scenario import Action, OnGate
from sim.tape import STREAMS, Draw, Source, Tape
from sim.trace import Entry
from sim.world import World

SCHEDULE = "schedule"

CHOICES = ("gate", "timer")

STORE_CALLS = ("read", "commit", "refused")

EXCLUSIVE = ("poison", "start", "shutdown")
"""Actions that reach beyond one node and one session."""


class NotingTape(Tape):
    """A tape that tells which draws took a value that it was given, rather than a zero after its end."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.given: dict[str, int] = dict.fromkeys(STREAMS, 0)
        self.told: Callable[[str], None] = lambda stream: None

    def draw(self, stream: str, label: str, bound: int) -> int:
        """As `Tape.draw`."""
        value = super().draw(stream, label, bound)
        if bound > 1 and stream != SCHEDULE and len(self.draws[stream]) <= self.given[stream]:
            self.told(stream)
        return value


def noting_tape(others: Mapping[str, Sequence[int | Draw]]) -> NotingTape:
    """A tape with these draws of all streams but the schedule, which an `Observer` draws."""
    tape = NotingTape.replay({**others, SCHEDULE: ()})
    assert isinstance(tape, NotingTape)
    tape.given = {stream: len(others.get(stream, ())) for stream in STREAMS}
    return tape


class Observer:
    """Watches one world from before its run; `steps` tells it all afterwards."""

    def __init__(self, world: World, tape: NotingTape, schedule: Sequence[int]) -> None:
        self._world = world
        self._tape = tape
        self._schedule = schedule
        self._sessions = [world.session_id(spec.name) for spec in world.scenario.sessions]
        self._acts = {f"act/{act.name}": act.spec for act in world.acts}
        self._picks: dict[int, tuple[tuple[str, ...], int]] = {}  # by the index of the entry that tells
        self._touched: dict[int, Touched] = {}  # by the index of the entry that comes next
        self._rang: dict[int, bool] = {}  # True: the committer's own bell, too
        self._advanced: dict[int, None] = {}
        self._parked: dict[int, list[tuple[str, str]]] = {}
        self._told: dict[Token, Sequence[Any]] = {}
        self._opaque = _is_opaque(world)
        tape.picker = self._pick
        tape.told = lambda stream: self._now().write(f"tape/{stream}")
        self._hook_database(world.database)
        self._hook_triggers()
        self._hook_time()

    # --- hooks ---------------------------------------------------------------------------------------

    def _now(self) -> Touched:
        return self._touched.setdefault(self._world.trace.count, Touched())

    def _pick(self, names: Sequence[str]) -> int:
        place = len(self._tape.draws[SCHEDULE])
        value = min(self._schedule[place], len(names) - 1) if place < len(self._schedule) else 0
        self._picks[self._world.trace.count] = (tuple(names), value)
        return value

    def _hook_database(self, database: SimDatabase) -> None:
        reader, read, ring = database.reader, database.read, database.ring

        def noted_batch(run: Callable[..., Any]) -> Callable[..., Any]:
            def batch(items: Sequence[Any], **kwargs: Any) -> Any:
                works = [item.work for item in items]
                for item, work in zip(items, works, strict=True):
                    item.work = self._noted_work(work)
                try:
                    return run(items, **kwargs)
                finally:
                    for item, work in zip(items, works, strict=True):
                        item.work = work

            return batch

        def noted_ring(*, but: Callable[[], None] | None) -> None:
            self._rang[self._world.trace.count] = but is None
            ring(but=but)

        hooks = vars(database)
        hooks["reader"] = lambda: Noted(reader(), self._now, self._sessions)
        hooks["read"] = lambda work: read(self._noted_work(work))
        hooks["run_batch"] = noted_batch(database.run_batch)
        hooks["try_out"] = noted_batch(database.try_out)
        hooks["ring"] = noted_ring

    def _noted_work(self, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda tx: work(Noted(tx, self._now, self._sessions))

    def _hook_triggers(self) -> None:
        triggers = self._world.triggers
        on_park = triggers.on_park
        trips = [act.trip for act in self._world.acts if act.trip is not None]

        def noted(gate: Gate) -> bool:
            before = [(trip.fired, trip.seen) for trip in trips]
            acted = on_park(gate)
            count = self._world.trace.count
            self._parked.setdefault(count, []).append((gate.node.name, gate.task))
            if gate.info.get("window") == "notify":
                token = ("gate", gate.node.key, gate.task, gate.label, str(gate.nth))
                self._told[token] = gate.info["events"]
            if before != [(trip.fired, trip.seen) for trip in trips]:
                self._now().everything = True
            return acted

        vars(triggers)["on_park"] = noted

    def _hook_time(self) -> None:
        agenda = self._world.kernel._agenda
        take_due = agenda.take_due

        def noted(now_ns: int) -> None:
            self._advanced[self._world.trace.count] = None
            take_due(now_ns)

        vars(agenda)["take_due"] = noted

    # --- afterwards ----------------------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """The steps of the run, in order, time's own among them."""
        chosen = list(self._choices())
        return list(steps_of(chosen, self._footprints(chosen)))

    def _choices(self) -> Iterator[Chosen]:
        moments, paused = sorted(self._advanced), 0
        for entry in self._world.trace.entries:
            if entry.kind == "node":
                paused += {"paused": 1, "running": -1}.get(entry.label, 0)
            if entry.kind not in CHOICES:
                continue
            advanced = bool(moments) and moments[0] <= entry.index
            while moments and moments[0] <= entry.index:
                moments.pop(0)
            alone = (f"{entry.node.rpartition('.')[0]}/{entry.task}",)
            tasks, choice = self._picks.get(entry.index, (alone, 0))
            missing = entry.fields["others"] - len(tasks) + 1
            hidden = missing > 0 and paused > 0
            yield Chosen(
                entry=entry,
                tasks=tasks,
                choice=choice,
                held=0 if hidden else missing,
                hidden=hidden,
                advanced=advanced,
            )

    # --- footprints ----------------------------------------------------------------------------------

    def _footprints(self, chosen: Sequence[Chosen]) -> list[Footprint]:
        if self._opaque or not chosen:
            return [EVERYTHING] * len(chosen)
        found = [Touched() for _ in chosen]
        running = self._running()

        called: dict[int, None] = {}
        for count, touched in self._touched.items():
            if (place := running[count]) >= 0:
                found[place].add(touched)
                called[place] = None
        for count, parked in self._parked.items():
            for node, task in parked if (place := running[count]) >= 0 else ():
                self._touch_task(found[place], node, task)
        for count, own_too in self._rang.items():
            if (place := running[count]) >= 0:
                committer = None if own_too else chosen[place].entry.node.rpartition(".")[0]
                found[place].write(*(f"bell/{name}" for name in self._world.nodes if name != committer))
        for entry in self._world.trace.entries[chosen[0].entry.index :]:
            place = running[entry.index + 1]
            self._touch_entry(found[place], entry)
            if entry.kind in STORE_CALLS and place not in called:
                found[place].everything = True  # it got to the store past the hooks
        starts_told: list[Opened | ToolStarted] = [*self._world.ledger.opened, *self._world.ledger.tools]
        for start in starts_told:
            touched = found[running[start.moment.entry]]
            touched.write("tools", f"provider/{start.session_id}")
            touched.read(f"claim/{start.session_id}", f"event/{start.session_id}")
        return [one.footprint() for one in found]

    def _running(self) -> list[int]:
        """Which step ran when the trace had so many entries, counted from 0; -1 before the first."""
        running = [-1]
        for entry in self._world.trace.entries:
            running.append(running[-1] + (entry.kind in CHOICES))
        return running

    def _touch_entry(self, touched: Touched, entry: Entry) -> None:
        node = entry.node.rpartition(".")[0] or entry.node
        if entry.kind == "fault":
            touched.everything = True
        self._touch_task(touched, node, entry.task)
        if entry.kind != "gate":
            return
        for event in self._told.get(token_of(entry), ()):
            touched.read(f"event/{event[1]}")
        closes = entry.task == "store writer" and entry.fields["cancelled"]
        if closes or entry.task in ("store doorbell", "node"):
            touched.write(f"bell/{node}")

    def _touch_task(self, touched: Touched, node: str, task: str) -> None:
        """What a task may touch beside the rows that its calls name, since it ran."""
        if node in self._world.nodes:
            touched.write(f"node/{node}")
        elif node != "world":
            touched.everything = True
        elif task.startswith("boot/"):
            touched.write("world", f"node/{task.removeprefix('boot/')}")
        elif task.startswith("follower/"):
            spec = self._world.scenario.followers[int(task.removeprefix("follower/")) - 1]
            touched.write("world", f"node/{spec.node}")
        elif task not in self._acts:
            touched.everything = True
        if task in self._acts:
            self._touch_act(touched, task)

    def _touch_act(self, touched: Touched, task: str) -> None:
        spec = self._acts[task]
        if not isinstance(spec, Action) or spec.do in EXCLUSIVE:
            touched.everything = True
            return
        touched.write("world", f"node/{spec.node}")
        if spec.session is not None:
            touched.write(*all_rows(self._world.session_id(spec.session)))


def _is_opaque(world: World) -> bool:
    """Whether nodes share what no hook shows: a disk, a project's own provider, a count of all gates."""
    counts_all = any(
        act.trip is not None and isinstance(act.trip.when, OnGate) and act.trip.when.node is None
        for act in world.acts
    )
    return counts_all or world.project != Project() or type(world.database) is not SimDatabase
