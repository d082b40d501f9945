"""Who may import whom, as a table; and who may ask the machine for time and chance: one module."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import attrs
import pytest

from tests.source_tree import Source, is_within, running_nodes, source, sources


@attrs.frozen(kw_only=True)
class Layer:
    """Modules (or packages) that may import each other, those of the layers before theirs, and `libs`."""

    name: str
    modules: str  #: names within `package`; `.` is the package itself
    libs: str
    package: str = "engine"

    @property
    def names(self) -> list[str]:
        """The modules' whole names."""
        return [f"{self.package}.{name}".removesuffix("..") for name in self.modules.split()]


PURE = "attrs collections contextlib enum functools itertools math re types typing"
"""What pure code may use: no Trio, no driver, no time, no chance, no logging, no files."""

STORE = PURE + " apsw errno importlib logging os stat threading trio urllib"
WAITS = PURE + " contextvars logging trio"

# A new module needs one word here. What it may import follows from where it stands.
LAYERS = (
    Layer(
        name="words",
        modules="errors records limits events codec buffer ports shape",
        libs=PURE + " difflib json msgspec",
    ),
    Layer(name="system", modules="system", libs=PURE + " random time trio uuid"),
    Layer(name="store", modules="store", libs=STORE),
    Layer(name="providers", modules="providers", libs=PURE + " json tomllib"),
    Layer(
        name="decisions",
        modules="claim_commands claims facts retry ingest step_records step_events step settlement turn"
        " drain history endings plan projections transactions admission",
        libs=PURE,
    ),
    Layer(name="verify", modules="verify", libs=PURE),
    Layer(
        name="waits",
        modules="doorbell changes live lease reading metrics log locations node keeping tools runner"
        " settler execution acquiring coordinator interrupting recovery turns housekeeping",
        libs=WAITS + " jsonschema",
    ),
    Layer(name="front door", modules="api service", libs=WAITS + " os"),
    Layer(name="testing", modules="testing", libs=WAITS + " importlib pytest"),
    Layer(
        name="commands",
        modules="cli demo __main__ .",
        libs=WAITS + " click datetime importlib json os rich sys tempfile unicodedata",
    ),
    Layer(
        name="simulated world, pure",
        modules="tape trace scenario ledger words.entry verdict history disk.draws generate saved schedulers"
        " shrink explore.footprints explore.steps explore.states",
        libs=PURE + " hashlib inspect json msgspec pathlib random textwrap tomli_w tomllib",
        package="sim",
    ),
    Layer(
        name="kernel",
        modules="gate agenda guard roster kernel",
        libs=PURE + " contextvars heapq outcome pathlib trio",
        package="sim",
    ),
    Layer(
        name="doubles",
        modules="clock ids database disk store provider tools project listeners locations",
        libs=PURE + " apsw base64 hashlib msgspec pkgutil trio",
        package="sim",
    ),
    Layer(
        name="worlds",
        modules="triggers node followers watcher faults machine acts world",
        libs=PURE + " hashlib trio",
        package="sim",
    ),
    Layer(
        name="checks",
        modules="record words expectations checks sometimes",
        libs=PURE + " msgspec",
        package="sim",
    ),
    Layer(
        name="ways to run",
        modules="patience determinism run matrix explore fuzz ablations report from_log strategies"
        " pytest_plugin cli __main__ .",
        libs=PURE
        + " base64 click concurrent hashlib html hypothesis json msgspec multiprocessing os pathlib pytest"
        " rich signal subprocess sys tempfile time tomllib trio",
        package="sim",
    ),
)

CLOSED: Mapping[str, str] = {
    "engine.store": "engine.service engine.testing engine.cli engine.demo sim",
    "engine.system": "engine.service engine.testing engine.cli engine.demo",
    "engine.providers": "engine.service engine.testing engine.cli engine.demo engine sim",
    "engine.testing": "",
    "engine.cli": "engine.demo engine.__main__",
}
"""Packages that only these may import, whatever their layer: the ports stand between them and the rest."""

NO_ENGINE = ("sim.gate", "sim.agenda", "sim.guard", "sim.roster", "sim.kernel", "sim.tape", "sim.trace")
"""The scheduler knows nothing of what it schedules."""

DEBTS: Mapping[tuple[str, str], str] = {}
"""Known breaches (module, import), each with what is to be done. A debt that is paid must be taken off."""

EVERYTHING = sources("engine", "sim")
MODULES = {each.module for each in EVERYTHING}


def imports(file: Source) -> Iterator[str]:
    """Dotted names of what a file imports at run time; a module of the project by its own name."""
    for node in running_nodes(file.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield whole if whole in MODULES else base


def layer_of(module: str) -> int | None:
    """The place of a module's layer in the table: that of the longest name it is within."""
    places = {name: n for n, layer in enumerate(LAYERS) for name in layer.names}
    while module not in places:
        module = module.rpartition(".")[0]
        if "." not in module:  # `engine` and `sim` in the table are the packages' own faces, not all inside
            return None
    return places[module]


def breaches(file: Source) -> Iterator[tuple[str, str, str]]:
    """(module, what it imports, why not) for each import that the table doesn't allow."""
    mine = layer_of(file.module)
    if mine is None:
        yield file.module, "", "has no line in the table"
        return
    for name in dict.fromkeys(imports(file)):
        why = _why_not(file.module, mine, name)
        if why is not None:
            yield file.module, name, why


def _why_not(module: str, mine: int, name: str) -> str | None:
    top = name.split(".")[0]
    if top == "":
        return "imports relatively"
    if top not in ("engine", "sim"):
        return None if top in ("__future__", *LAYERS[mine].libs.split()) else f"isn't for {LAYERS[mine].name}"
    if top == "sim" and module.startswith("engine"):
        return "the engine never imports its simulator"
    if top == "engine" and is_within(module, NO_ENGINE):
        return "the scheduler knows nothing of the engine"
    for package, importers in CLOSED.items():
        inside = is_within(module, [package])
        if is_within(name, [package]) and not inside and not _may(module, importers):
            return f"only {importers or 'nobody'} may import {package}"
    theirs = layer_of(name)
    if theirs is None or theirs > mine:
        return f"is above {LAYERS[mine].name}"
    return None


def _may(module: str, importers: str) -> bool:
    return any(
        is_within(module, [each]) if each != "engine" else module == "engine" for each in importers.split()
    )


@pytest.mark.parametrize("file", EVERYTHING, ids=lambda file: file.module)
def test_modules_import_only_what_their_layer_may(file: Source) -> None:
    """Words know nobody, decisions know words, what waits knows decisions, the front door wires."""
    assert [each for each in breaches(file) if each[:2] not in DEBTS] == []


def test_debts_are_still_owed() -> None:
    """A breach that was mended leaves the list, so that it can't come back unseen."""
    found = {each[:2] for file in EVERYTHING for each in breaches(file)}
    assert [debt for debt in DEBTS if debt not in found] == []


def test_each_module_has_one_layer() -> None:
    """No module is named twice, and packages hold only what is theirs."""
    names = [name for layer in LAYERS for name in layer.names]
    assert len(names) == len(set(names))


# --- time and chance ---------------------------------------------------------------------------------

CLOCKS = ("time", "random", "uuid", "secrets", "asyncio", "sched")
TRIO_TIME = ("sleep", "move_on", "fail_a", "current_time", "testing.MockClock", "testing.autojump")


def asks_the_machine(file: Source) -> Iterator[str]:
    """Each use of the machine's clock or chance, or of Trio's own time, with its line."""
    names = _names(file)
    for node in ast.walk(file.tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                whole = f"{module}.{alias.name}".lstrip(".")
                if whole.split(".")[0] in CLOCKS or _is_trio_time(whole):
                    yield f"{line}: imports {whole}"
        elif isinstance(node, ast.Attribute):
            whole = _dotted(node, names)
            if _is_trio_time(whole) or whole.startswith("trio_util.periodic") or _is_now(whole):
                yield f"{line}: {whole}"
        elif isinstance(node, ast.Call):
            yield from _call(node, _dotted(node.func, names), line)


def _call(node: ast.Call, whole: str, line: int) -> Iterator[str]:
    given = {keyword.arg for keyword in node.keywords}
    if whole == "trio.CancelScope" and (node.args or given & {"deadline", "relative_deadline", "shield"}):
        yield f"{line}: a cancel scope with a deadline or a shield of its own"
    for word in ("held_for", "timeout"):
        if word in given:
            yield f"{line}: {word}="


def _names(file: Source) -> dict[str, str]:
    """What each imported name stands for."""
    found: dict[str, str] = {}
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.split(".")[0]
                found[alias.asname or whole] = whole
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _dotted(node: ast.AST, names: Mapping[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, names)}.{node.attr}"
    return names.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def _is_trio_time(whole: str) -> bool:
    return any(whole.startswith(f"trio.{name}") for name in TRIO_TIME) and whole != "trio.sleep_forever"


def _is_now(whole: str) -> bool:
    return whole.startswith("datetime.") and whole.endswith((".now", ".utcnow", ".today"))


MAY_ASK = {
    "engine.system": "the adapter",
    "engine.testing.running": "runs a test on Trio's own virtual clock",
    "sim.clock": "the adapter's double: its shields are counted, so that a power cut can take them",
    "sim.tape": "fills a tape from a seed, with a generator of its own",
    "sim.schedulers": "fill a tape from a seed in other ways, each with a generator of its own",
}
"""Who asks the machine, and why; beside the commands of the simulator, which measure how long a run took."""


@pytest.mark.parametrize("file", EVERYTHING, ids=lambda file: file.module)
def test_time_and_chance_come_only_from_the_ports(file: Source) -> None:
    """No module but the adapter uses a clock, a random source, or Trio's own time."""
    found = list(asks_the_machine(file))
    if file.module in MAY_ASK:
        assert found != [], "it doesn't need its permission any more"
        return
    if LAYERS[layer_of(file.module) or 0].name == "ways to run":
        found = [each for each in found if not each.endswith((": imports time", "timeout="))]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "import random as chance",
        "from uuid import uuid4",
        "from time import monotonic",
        "import asyncio",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime, UTC\ndatetime.now(UTC)",
        "from datetime import date\ndate.today()",
        "import trio\nasync def f():\n    await trio.sleep(1)",
        "import trio as t\nasync def f():\n    await t.sleep_until(1)",
        "from trio import sleep",
        "from trio import move_on_after as bounded",
        "import trio\ntrio.move_on_at(3)",
        "import trio\ntrio.fail_after(3)",
        "import trio\nnow = trio.current_time()",
        "import trio\nscope = trio.CancelScope(deadline=3)",
        "import trio\nscope = trio.CancelScope(relative_deadline=3)",
        "import trio\nscope = trio.CancelScope(shield=True)",
        "from trio import CancelScope\nscope = CancelScope(deadline=3)",
        "import trio_util\ntrio_util.periodic(3)",
        "from trio_util import AsyncValue\nAsyncValue(1).wait_value(1, held_for=3)",
        "import threading\nthreading.Event().wait(timeout=3)",
    ],
)
def test_each_way_to_ask_the_machine_is_seen(text: str) -> None:
    """The rule itself: whatever name it goes by, it is found."""
    assert list(asks_the_machine(source(text))) != []


@pytest.mark.parametrize(
    "text",
    [
        "import trio\nscope = trio.CancelScope()\ntrio.Event()\nawaited = trio.sleep_forever",
        "from datetime import datetime, UTC\ndatetime.fromtimestamp(3, UTC)",
        "import math\nclock.sleep(3)\nclock.monotonic()\nself.time.now()",
        "from trio_util import wait_any",
    ],
)
def test_what_is_welcome_is_not_seen(text: str) -> None:
    """Ports, plain scopes and pure conversions are no business of the rule."""
    assert list(asks_the_machine(source(text))) == []


@pytest.mark.parametrize(
    ("module", "text", "why"),
    [
        ("engine.drain", "import trio", "isn't for decisions"),
        ("engine.codec", "import logging", "isn't for words"),
        ("engine.events", "from engine import drain", "is above words"),
        ("engine.drain", "from engine.log import Log", "is above decisions"),
        ("engine.execution", "import apsw", "isn't for waits"),
        ("engine.execution", "from engine.store import open_store", "may import engine.store"),
        ("engine.execution", "from engine.store.batch import Item", "may import engine.store"),
        ("engine.store.batch", "from engine.log import Log", "is above store"),
        ("engine.runner", "from engine.system import RealClock", "may import engine.system"),
        ("engine.service", "from engine import testing", "nobody may import engine.testing"),
        ("engine.service", "from sim.world import World", "never imports its simulator"),
        ("engine.newcomer", "", "has no line"),
        ("engine.drain", "from . import events", "imports relatively"),
        ("sim.kernel", "from engine.errors import FencepostError", "knows nothing of the engine"),
        ("sim.scenario.read", "import trio", "isn't for simulated world, pure"),
        ("sim.checks.trace", "import apsw", "isn't for checks"),
        ("sim.tape", "from sim.world import World", "is above"),
    ],
)
def test_each_breach_is_seen(module: str, text: str, why: str) -> None:
    """The table itself: what it forbids is found, and said."""
    (found,) = breaches(source(text, module))
    assert why in found[2]


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("engine.drain", "from __future__ import annotations\nimport attrs\nfrom engine import events as ev"),
        ("engine.settler", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import apsw"),
        ("engine.store.batch", "import apsw\nfrom engine.store.mapping import map_error"),
        ("engine.service", "from engine.store import open_store\nfrom engine.system import real_system"),
        ("sim.database", "import apsw\nfrom engine.store.batch import Item"),
    ],
)
def test_what_the_table_allows_is_not_seen(module: str, text: str) -> None:
    """Imports of lower layers, of the own package and for types only are fine."""
    assert list(breaches(source(text, module))) == []
