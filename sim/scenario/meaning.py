"""What a scenario file must satisfy beyond its shape: names that exist, keys that go together.

The checks see every table that could be decoded, and the names of all of them, so that one broken table
doesn't raise a second complaint elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs

from engine.errors import ConfigError
from engine.events import REGISTRY, StepEvent
from engine.limits import EngineConfig
from engine.shape import Decoder, Path, hints_of, keys_of, nearest, show
from sim.scenario import expect as ex
from sim.scenario.disk import OnDisk, disk_flaws
from sim.scenario.keys import (
    ACTION_KEYS,
    ALL_AT_ONCE,
    FAULT_KEYS,
    LASTING,
    LISTENER_KEYS,
    REQUIRED,
    TAKEN_BY_SOME,
)
from sim.scenario.model import (
    NODES_MAX,
    Action,
    After,
    Fault,
    Follower,
    Listener,
    NodeClock,
    OnEvent,
    OnGate,
    Session,
    Tool,
)
from sim.scenario.values import ALL_NODES, DONE, END, ERROR_NAMES, INTERRUPT_ANSWERS, STOPPED

T = TypeVar("T")

MOMENT = "action or fault"

SECTIONS_WITH_NAMES = (
    *(("nodes", "node"), ("sessions", "session")),
    *(("tools", "tool"), ("locations", "location")),
)


def check_meaning(raw: Mapping[str, Any], decoder: Decoder) -> None:
    """Add to `decoder` every flaw in the meaning of what it has built from `raw`."""
    _Meaning(raw=raw, decoder=decoder).check()


def _tables(raw: Mapping[str, Any], section: str) -> list[tuple[int, Mapping[str, Any]]]:
    tables = raw.get(section)
    if not isinstance(tables, list):
        return []
    return [(nth, table) for nth, table in enumerate(tables) if isinstance(table, Mapping)]


@attrs.define
class _Meaning:
    raw: Mapping[str, Any]
    decoder: Decoder
    names: dict[str, list[str]] = attrs.field(factory=dict)  # by kind: node, session, tool, location, moment
    verbs: dict[str, str] = attrs.field(factory=dict)  # what the actions of that name do
    follows: dict[str, tuple[str, Path]] = attrs.field(factory=dict)  # after whom an action or fault waits

    def check(self) -> None:
        self._collect_names()
        self._nodes()
        self._config()
        for cls, check in self._checks():
            for path, built in list(self.decoder.built):
                if type(built) is cls:
                    check(path, built)
        self._circles()

    def _checks(self) -> list[tuple[type, Callable[[Path, Any], None]]]:
        return [
            (NodeClock, self._clock),
            (Session, self._references),
            (Tool, self._tool),
            (Listener, self._listener),
            (Follower, self._references),
            (Action, self._action),
            (Fault, self._fault),
            (OnEvent, self._references),
            (OnGate, self._references),
            (OnDisk, self._references),
            (After, self._references),
            (ex.ExpectClaim, self._expect_claim),
            (ex.ExpectEvents, self._expect_events),
            (ex.ExpectOrder, self._expect_order),
            (ex.ExpectAnswer, self._expect_answer),
            (ex.ExpectRequests, self._expect_count),
            (ex.ExpectTool, self._references),
            (ex.ExpectRefused, self._expect_refused),
            (ex.ExpectStatus, self._references),
            (ex.ExpectTakeovers, self._expect_count),
        ]

    def _flaw(self, path: Path, message: str, hint: str = "") -> None:
        self.decoder.flaw(path, message, hint)

    # --- names ---------------------------------------------------------------------------------------

    def _collect_names(self) -> None:
        for section, kind in SECTIONS_WITH_NAMES:
            self._collect(kind, [section], "name")
        self._collect(MOMENT, ["actions", "faults"], "as")
        for _, table in _tables(self.raw, "actions"):
            if isinstance(table.get("as"), str):
                self.verbs[table["as"]] = str(table.get("do"))

    def _collect(self, kind: str, sections: list[str], key: str) -> None:
        known = self.names[kind] = list[str]()
        for section in sections:
            for nth, table in _tables(self.raw, section):
                name = table.get(key)
                if not isinstance(name, str):
                    continue
                if name in known:
                    self._flaw((section, nth, key), f"the name {show(name)} is given twice")
                if name == END and kind == MOMENT:
                    self._flaw((section, nth, key), f"{show(END)} means the end of the run", "rename it")
                known.append(name)

    def _known(self, kind: str, name: str | None, path: Path) -> None:
        known = self.names[kind]
        if not known and kind == "node":
            return  # that there are no nodes was told already
        if name is not None and name not in known:
            self._flaw(path, f"unknown {kind} {show(name)}", nearest(name, known))

    def _references(self, path: Path, built: Any) -> None:
        """Every key of the table that names a node, a session, a tool, a location, or an action or fault."""
        kinds = {"node": "node", "session": "session", "tool": "tool", "after": MOMENT, "at": MOMENT}
        kinds["location"] = "location"
        kinds |= dict.fromkeys(("claim", "events", "order", "requests", "status", "takeovers"), "session")
        kinds["answer"] = MOMENT
        for key in keys_of(type(built)):
            name = getattr(built, key, None)
            everyone = key == "node" and name in (ALL_NODES, "")  # where it may stand, its shape says
            if key in kinds and not (name == END and key == "at") and not everyone:
                self._known(kinds[key], name, (*path, key))

    # --- who is there --------------------------------------------------------------------------------

    def _nodes(self) -> None:
        nodes = self.raw.get("nodes")
        if isinstance(nodes, list) and not 1 <= len(nodes) <= NODES_MAX:
            self._flaw(("nodes",), f"a scenario has 1 to {NODES_MAX} nodes, not {len(nodes)}")

    def _clock(self, path: Path, clock: NodeClock) -> None:
        for nth, (step, after) in enumerate(zip(clock.steps, clock.steps[1:], strict=False), start=1):
            if after.at_s < step.at_s:
                self._flaw((*path, "steps", nth, "at_s"), "clock steps stand in the order of their times")
        for key, other in (("boot_offset_ms", "boot_for_s"), ("boot_for_s", "boot_offset_ms")):
            if getattr(clock, key) and not getattr(clock, other):
                self._flaw((*path, key), f"{key} needs {other}")

    def _tool(self, path: Path, tool: Tool) -> None:
        self._references(path, tool)
        ends = ("output", "results", "unfit", "fails", "crashes")
        given = [key for key in ends if getattr(tool, key) is not None]
        if len(given) > 1:
            self._flaw((*path, given[1]), f"{' and '.join(given)} don't go together: give one")
        if tool.repeat > 1 and not isinstance(tool.output, str):
            self._flaw((*path, "repeat"), "repeat lengthens an output that is text")
        if tool.results == ():
            self._flaw((*path, "results"), "is empty: give at least one result, or an output")
        if tool.session is not None and tool.asks is None:
            self._flaw((*path, "session"), "a tool that asks nothing has no session", "give asks, too")

    def _listener(self, path: Path, listener: Listener) -> None:
        self._references(path, listener)
        self._takes(path, listener, "does", listener.does, LISTENER_KEYS[listener.does])

    # --- configuration -------------------------------------------------------------------------------

    def _config(self) -> None:
        config = self.raw.get("config")
        if not isinstance(config, Mapping):
            return
        fields = attrs.fields_dict(EngineConfig)
        before = len(self.decoder.flaws)
        for key, value in config.items():
            if key not in fields:
                self._flaw(("config", key), f"unknown key {show(key)}", nearest(key, fields))
            elif type(value) is not type(fields[key].default):
                wanted = "text" if isinstance(fields[key].default, str) else "a whole number"
                self._flaw(("config", key), f"must be {wanted}, not {show(value)}")
        expected = any("config_refused" in table for _, table in _tables(self.raw, "expect"))
        if expected or len(self.decoder.flaws) > before:
            return
        try:
            EngineConfig(**config)
        except (ConfigError, ValueError) as exc:
            self._refused_config(config, exc)

    def _refused_config(self, config: Mapping[str, Any], error: Exception) -> None:
        """Tie the engine's complaint to the first key it names that the file gives."""
        named = [key for key in config if key in str(error)]
        path: Path = ("config", named[0]) if named else ("config",)
        self._flaw(path, str(error), "if the file is about this refusal, expect config_refused")

    # --- what happens --------------------------------------------------------------------------------

    def _action(self, path: Path, action: Action) -> None:
        self._references(path, action)
        self._moment(path, action)
        self._takes(path, action, "do", action.do, ACTION_KEYS[action.do])
        self._disk(path, action)

    def _fault(self, path: Path, fault: Fault) -> None:
        self._references(path, fault)
        self._moment(path, fault)
        self._takes(path, fault, "kind", fault.kind, FAULT_KEYS[fault.kind])
        if fault.kind in LASTING and fault.for_s == 0:
            self._flaw((*path, "for_s"), f"a {fault.kind} lasts longer than 0 s")
        if fault.node == ALL_NODES and fault.kind not in ALL_AT_ONCE:
            self._flaw((*path, "node"), f"kind = {show(fault.kind)} strikes one node, not all of them")
        self._again(path, fault)
        self._disk(path, fault)

    def _disk(self, path: Path, what: Action | Fault) -> None:
        for key, message, hint in disk_flaws(what, has_disk=isinstance(self.raw.get("disk"), Mapping)):
            self._flaw((*path, key) if key else path, message, hint)

    def _again(self, path: Path, fault: Fault) -> None:
        """A node that is to be struck again, or to have another's owner id, must come back first."""
        comes_back = fault.kind not in ("cancel", "power_cut") or bool(fault.for_s)
        for key in ("owner", "times"):
            if getattr(fault, key) is not None and not comes_back:
                self._flaw((*path, key), "the node never starts again", "give for_s, after how long it does")
        for key, other in (("times", "again_after_s"), ("again_after_s", "times")):
            taken = key in FAULT_KEYS[fault.kind] and getattr(fault, key) is not None
            if taken and getattr(fault, other) is None:
                self._flaw((*path, key), f"{key} needs {other}")

    def _moment(self, path: Path, what: Action | Fault) -> None:
        if what.at_s is None and what.when is None:
            self._flaw(path, "says no moment", "give at_s or when")
        if what.at_s is not None and what.when is not None:
            self._flaw((*path, "when"), "at_s and when don't go together: give one")
        if what.as_ is not None and isinstance(what.when, After):
            self.follows[what.as_] = (what.when.after, (*path, "when", "after"))

    def _takes(
        self, path: Path, what: Action | Fault | Listener, key: str, word: str, takes: Mapping[str, str]
    ) -> None:
        """The keys that only some kinds have: those that are missing, those that say nothing here."""
        for name in TAKEN_BY_SOME:
            value = getattr(what, name, None)
            if value is None and takes.get(name) == REQUIRED:
                self._flaw(path, f"{key} = {show(word)} needs {name}")
            if value is not None and name not in takes:
                self._flaw((*path, name), f"{key} = {show(word)} has no {name}")

    def _circles(self) -> None:
        """Actions and faults that wait for each other never happen."""
        for start, (_, path) in self.follows.items():
            seen, name = [start], self.follows[start][0]
            while name in self.follows and name not in seen:
                seen.append(name)
                name = self.follows[name][0]
            if name == start:
                self._flaw(path, f"waits for itself: {' after '.join([*seen, start])}")

    # --- what is expected ----------------------------------------------------------------------------

    def _exactly_one(self, path: Path, built: Any, keys: list[str]) -> None:
        given = [key for key in keys if getattr(built, key, getattr(built, f"{key}_", None)) is not None]
        if len(given) != 1:
            found = " and ".join(given) + " don't go together" if given else "says nothing"
            self._flaw((*path, *given[1:2]), f"{found}: give exactly one of {', '.join(keys)}")

    def _expect_claim(self, path: Path, claim: ex.ExpectClaim) -> None:
        self._references(path, claim)
        self._exactly_one(path, claim, ["at", "after"])
        for key in ("phase", "seq_of", "expires_at", "message"):
            if not claim.exists and getattr(claim, key) is not None:
                self._flaw((*path, key), f"a claim that doesn't exist has no {key}")

    def _expect_events(self, path: Path, events: ex.ExpectEvents) -> None:
        self._expect_count(path, events)
        fields = [name for name in hints_of(REGISTRY[events.type, 1]) if name != "session_id"]
        for key in events.having:
            if key not in fields:
                known = [*keys_of(ex.ExpectEvents), *fields]
                self._flaw((*path, key), f"{events.type} has no field {show(key)}", nearest(key, known))
        if events.same_step_as is not None:
            for key, kind in (("type", events.type), ("same_step_as", events.same_step_as)):
                if not issubclass(REGISTRY[kind, 1], StepEvent):
                    self._flaw((*path, key), f"{kind} belongs to no step, so same_step_as can't be checked")

    def _expect_order(self, path: Path, order: ex.ExpectOrder) -> None:
        self._references(path, order)
        self._exactly_one(path, order, ["types", "ends_with", "contains"])

    def _expect_answer(self, path: Path, answer: ex.ExpectAnswer) -> None:
        self._references(path, answer)
        self._exactly_one(path, answer, ["is", "one_of"])
        if answer.answer in self.names[MOMENT] and answer.answer not in self.verbs:
            self._flaw((*path, "answer"), f"{show(answer.answer)} is a fault, and a fault answers nothing")
        words = INTERRUPT_ANSWERS if self.verbs.get(answer.answer) == "interrupt" else (DONE,)
        known = (*words, STOPPED, *ERROR_NAMES)
        for word in answer.allowed:
            if word not in known and answer.answer in self.verbs:
                key = "one_of" if answer.is_ is None else "is"
                verb = self.verbs[answer.answer]
                self._flaw((*path, key), f"{verb} never answers {show(word)}", f"it may: {', '.join(words)}")

    def _expect_refused(self, path: Path, refused: ex.ExpectRefused) -> None:
        self._references(path, refused)
        self._bounds(path, refused)

    def _expect_count(self, path: Path, counted: ex.Counted) -> None:
        self._references(path, counted)
        if counted.count is None and counted.at_least is None and counted.at_most is None:
            self._flaw(path, "says no number", "give count, at_least or at_most")
        self._bounds(path, counted)

    def _bounds(self, path: Path, counted: ex.Counted) -> None:
        for key in ("at_least", "at_most"):
            if counted.count is not None and getattr(counted, key) is not None:
                self._flaw((*path, key), f"count and {key} don't go together")
        if (
            counted.at_least is not None
            and counted.at_most is not None
            and counted.at_most < counted.at_least
        ):
            self._flaw((*path, "at_most"), "at_most is below at_least")
