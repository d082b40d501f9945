"""The pages on the design and on the simulator say what the code says."""

from __future__ import annotations

import itertools
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import pytest

from engine import claims, verify
from engine.claims import MOVES, TABLE
from engine.limits import EngineConfig
from engine.records import Phase
from sim import gate, trace
from sim.__main__ import main
from sim.checks.clients import CLIENT_CHECKS
from sim.checks.disk import DISK_CHECKS
from sim.checks.rest import REST_CHECKS
from sim.checks.trace import TRACE_CHECKS
from sim.run import WINDOWS, run_scenario
from sim.scenario import check_scenario, load_scenario
from tests.source_tree import ROOT
from tests.test_layering import LAYERS

DESIGN = ROOT / "docs" / "design.md"
SIMULATOR = ROOT / "docs" / "simulator.md"
WRITING = ROOT / "docs" / "writing-simulatable-code.md"
PAGES = (DESIGN, SIMULATOR, WRITING)
DRAWER = runpy.run_path(str(ROOT / "docs" / "make_claim_diagram.py"), run_name="make_claim_diagram")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def table(page: Path, heading: str) -> list[list[str]]:
    """The rows of the page's table that begins with `heading`."""
    text = text_of(page)
    lines = text[text.index(f"| {heading} |") :].splitlines()[2:]
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def words(cell: str) -> list[str]:
    """What a cell has in back-quotes."""
    return re.findall(r"`([^`]+)`", cell)


# --- the claim ---------------------------------------------------------------------------------------


def test_the_claim_is_drawn_as_it_is() -> None:
    """The page holds what its script draws from the tables of `engine.claims`."""
    page = text_of(DESIGN)
    assert DRAWER["redrawn"](page, DRAWER["drawing"]()) == page, "run python docs/make_claim_diagram.py"


def arrows(drawn: str) -> set[tuple[str, str]]:
    """The moves that a diagram shows, those of its box spelt out."""
    body = drawn.partition("state running {")[2].partition("}")[0]
    inside = {each for pair in re.findall(r"(\w+) --> (\w+)", body) for each in pair}
    found: set[tuple[str, str]] = set()
    for start, end in re.findall(r"([\w\[\]*]+) --> ([\w\[\]*]+)", drawn):
        found |= {(each, end) for each in (inside if start == "running" else [start])}
    return found


def test_the_diagram_shows_every_move() -> None:
    """Each move to another phase is an arrow, and so are a claim's beginning and the ways it is cleared."""
    drawn = "\n".join(DRAWER["diagram"](TABLE, MOVES))
    moves = {(str(one), str(to)) for one, all_of in MOVES.items() for to in all_of if to is not one}
    cleared = {(str(phase), "[*]") for phase in Phase if phase is not Phase.CANCELLING}
    assert arrows(drawn) == moves | cleared | {("[*]", "running"), ("[*]", "ready")}


def test_the_drawing_follows_the_tables() -> None:
    """A move or a rule that changes changes the drawing: a phase with rules of its own leaves the box."""
    drawing = DRAWER["drawing"]
    fewer = MappingProxyType({**MOVES, Phase.READY: (Phase.READY, Phase.UNKNOWN)})
    assert ("ready", "cancelling") not in arrows("\n".join(DRAWER["diagram"](TABLE, fewer)))
    assert ("safe", "cancelling") in arrows("\n".join(DRAWER["diagram"](TABLE, fewer)))
    column = {**TABLE[Phase.SAFE], claims.Clear: claims.Rule.REFUSE}
    other = drawing(MappingProxyType({**TABLE, Phase.SAFE: column}), MOVES)
    assert ("safe", "[*]") not in arrows(other)
    assert "| `ready`, `unknown`, `continue` | `safe` |" in other


def test_the_rules_have_a_cell_for_each_command_and_phase() -> None:
    """The table of rules says of each command, in each phase, what `engine.claims.TABLE` says."""
    heads = text_of(DESIGN).partition("| command | ")[2].partition("\n")[0].strip(" |").split(" | ")
    seen: dict[tuple[str | None, str], str] = {}
    for name, *cells in table(DESIGN, "command"):
        for head, cell in zip(heads, cells, strict=True):
            for phase in words(head) or [None]:
                seen[phase, *words(name)] = cell
    assert seen == {
        (None if phase is None else str(phase), command.__name__): rule.value
        for phase, column in TABLE.items()
        for command, rule in column.items()
    }


def test_a_page_without_markers_is_refused() -> None:
    """The script changes nothing in a page whose place it can't find."""
    with pytest.raises(ValueError, match="substring"):
        DRAWER["redrawn"]("# A page\n", "drawn")


def test_every_phase_is_explained() -> None:
    """The table of phases has each of them, in the order of the code."""
    assert [words(row[0])[0] for row in table(DESIGN, "phase")] == [str(phase) for phase in Phase]


def test_the_sum_of_the_lease_rule_is_right() -> None:
    """The page adds up the defaults as `EngineConfig` does, and each bound it names has the value it says."""
    config = EngineConfig()
    drift = config.margin_ms - config.clock_skew_ms_max - config.settle_ms_max
    needed = round(config.renew_interval_ms) + config.margin_ms + config.write_timeout_ms
    rows = table(DESIGN, "part")
    assert [row[1] for row in rows] == [
        str(config.clock_skew_ms_max),
        str(drift),
        str(config.settle_ms_max),
        str(config.margin_ms),
        str(round(config.renew_interval_ms)),
        str(config.write_timeout_ms),
        f"{needed} < {config.lease_ms}",
    ]
    assert f"{config.lease_ms - config.margin_ms} ms after the write" in rows[3][2]
    assert all(hasattr(config, words(row[0])[0].split()[0]) for row in rows)


def test_the_layers_are_those_that_are_enforced() -> None:
    """The table of layers is the engine's part of the table of allowed imports, row for row."""
    enforced = [[each.name, *each.modules.split()] for each in LAYERS if each.package == "engine"]
    assert [[row[0], *words(row[1])] for row in table(DESIGN, "layer")] == enforced


# --- the simulator -----------------------------------------------------------------------------------


def test_every_invariant_is_listed_where_it_is_checked() -> None:
    """The table has each invariant, and says whether a database or a run's trace shows it."""
    traced = {check.__name__.upper() for check in (*TRACE_CHECKS, *CLIENT_CHECKS, *REST_CHECKS, *DISK_CHECKS)}
    expected = []
    for number in range(1, len(verify.CHECKS.keys() | verify.NOT_CHECKABLE.keys()) + 1):
        name = f"I{number}"
        places = [*(["log"] if name in verify.CHECKS else []), *(["trace"] if name in traced else [])]
        expected.append((name, ", ".join(places) or "nowhere"))
    rows = [(row[0], row[2].partition(" yet")[0]) for row in table(SIMULATOR, "id")]
    assert rows == expected


def test_every_command_is_explained() -> None:
    """The page tells of each command of `python -m sim`, and of no other."""
    section = text_of(SIMULATOR).partition("\n## Ways to run\n")[2].partition("\n## ")[0]
    told = re.findall(r"^\*\*`([\w-]+)[^`]*`\*\*", section, re.MULTILINE)
    assert sorted(told) == sorted(main.commands)


def test_every_option_that_is_named_exists() -> None:
    """What the page calls an option of a command is one."""
    known = {option for command in main.commands.values() for each in command.params for option in each.opts}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text_of(SIMULATOR)))
    assert named <= known


def test_the_windows_are_those_of_the_code() -> None:
    """The table of windows has each of them, in the order in which they pass."""
    assert tuple(words(row[0])[0] for row in table(SIMULATOR, "window")) == WINDOWS


def first_scenario(folder: Path, **changes: str) -> Path:
    """The page's first scenario as a file, with words replaced."""
    source, *_ = re.findall(r"^```toml\n(.*?)^```$", text_of(SIMULATOR), re.MULTILINE | re.DOTALL)
    for old, new in changes.items():
        assert old in source
        source = source.replace(old, new)
    path = folder / "first.toml"
    path.write_text(source, encoding="utf-8")
    return path


def test_the_first_scenario_breaks_as_the_page_says(tmp_path: Path) -> None:
    """As it stands there, one expectation of it is wrong, and the report is the page's word for word."""
    (violation,) = run_scenario(load_scenario(first_scenario(tmp_path))).violations
    shown = [
        f"{indent}{line}\n" for indent, line in zip(("       ", "         "), violation.lines(), strict=True)
    ]
    assert "".join(shown) in text_of(SIMULATOR)


def test_the_first_scenario_holds_once_it_is_mended(tmp_path: Path) -> None:
    """With the count that the page tells to write, all holds, in one order of things and in another."""
    mended = first_scenario(tmp_path, **{'requests = "s"\ncount = 1': 'requests = "s"\ncount = 2'})
    assert run_scenario(load_scenario(mended), check_determinism=True).violations == []


def test_the_mistakes_on_the_page_are_told_as_it_says(tmp_path: Path) -> None:
    """Two slips of the pen give the two lines that the page shows."""
    typo = first_scenario(tmp_path, power_cut="powercut", window="windw")
    for problem in check_scenario(typo):
        assert str(problem).partition("first.toml")[2] in text_of(SIMULATOR)


# --- all of them -------------------------------------------------------------------------------------


def broken_rules_named() -> Iterator[str]:
    for row in table(WRITING, "what you see"):
        yield from re.findall(r"^`([A-Z]\w+)", row[0])


def test_the_errors_of_a_broken_rule_exist() -> None:
    """Each error that the page on writing code explains is one of the simulator's."""
    named = list(broken_rules_named())
    assert len(named) >= 5
    assert [name for name in named if not hasattr(gate, name) and not hasattr(trace, name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_that_are_named_exist(page: Path) -> None:
    """A file of the project that a page names is there."""
    named = re.findall(r"`((?:docs|engine|sim|scenarios|tests)/[\w./-]*)`", text_of(page))
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_the_code_exist(page: Path) -> None:
    """A dotted name of the engine or of the simulator that a page gives can be imported."""
    for name in re.findall(r"`((?:engine|sim)\.[\w.]+)`", text_of(page)):
        assert found(name), f"{page.name} names {name}"


def found(name: str) -> bool:
    parts = name.split(".")
    for place in range(len(parts), 0, -1):
        try:
            thing: Any = __import__(".".join(parts[:place]), fromlist=["_"])
        except ImportError:
            continue
        return all((thing := getattr(thing, part, None)) is not None for part in parts[place:])
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_bounds_that_are_named_exist(page: Path) -> None:
    """What looks like a bound of the configuration is one."""
    known = {each.name for each in attrs.fields(EngineConfig)} | {"margin_ms", "renew_interval_ms", "now_ms"}
    named = set(re.findall(r"`(\w+_ms(?:_max)?|\w+_max)`", text_of(page)))
    assert named <= known
