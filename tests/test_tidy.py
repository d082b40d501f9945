"""The house rules that a reader would notice: sizes, words, docstrings, and tests that mirror modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.source_tree import Source, is_within, source, sources

LINES_MAX = 400
FUNCTION_LINES_MAX = 60
WIDTH_MAX = 110

COMMANDS = ("engine.__main__", "engine.cli", "engine.demo", "sim.__main__", "sim.report")
"""What talks to a terminal."""

BANNED: Mapping[str, str] = {
    "TO" + "DO": "mend it, or write an issue",
    "FIX" + "ME": "mend it, or write an issue",
    "X" + "XX": "say what is meant",
    "HA" + "CK": "say why it has to be so",
    "/ho" + "me/": "no paths of a machine",
    "/wo" + "rk/": "no paths of a machine",
}

Rule = Callable[[Source], Iterator[str]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(file: Source) -> Iterator[Function]:
    """Every function and method, nested ones included."""
    for node in ast.walk(file.tree):
        if isinstance(node, Function):
            yield node


# --- the rules ---------------------------------------------------------------------------------------


def short_files(file: Source) -> Iterator[str]:
    """A file has one idea, and fits a reader's head."""
    count = len(file.text.splitlines())
    if count >= LINES_MAX:
        yield f"{count} lines: split it along a seam"


def short_functions(file: Source) -> Iterator[str]:
    """A function fits a screen."""
    for node in functions(file):
        count = (node.end_lineno or node.lineno) - node.lineno + 1
        if count >= FUNCTION_LINES_MAX:
            yield f"{node.lineno}: {node.name} has {count} lines"


def narrow_lines(file: Source) -> Iterator[str]:
    """Lines can be read side by side."""
    for number, line in enumerate(file.text.splitlines(), 1):
        line = line.partition("  # type: ignore")[0]
        if len(line) > WIDTH_MAX:
            yield f"{number}: {len(line)} characters"


def no_banned_words(file: Source) -> Iterator[str]:
    """Nothing is left for later, and nothing names the machine it was written on."""
    for number, line in enumerate(file.text.splitlines(), 1):
        for word, instead in BANNED.items():
            if word in line:
                yield f"{number}: {word}: {instead}"


def quiet(file: Source) -> Iterator[str]:
    """Only commands print; all else logs, without payloads, or answers."""
    if is_within(file.module, COMMANDS):
        return
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{node.lineno}: only commands print"


def headed(file: Source) -> Iterator[str]:
    """Each module says what it is for, and postpones its annotations."""
    if not file.tree.body:
        return
    if ast.get_docstring(file.tree) is None:
        yield "no docstring of the module"
    future = (n for n in file.tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__")
    code = [n for n in file.tree.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    if code and not any(alias.name == "annotations" for node in future for alias in node.names):
        yield "no `from __future__ import annotations`"


def documented(file: Source) -> Iterator[str]:
    """What others may use says what it is. A stub without a body (`...`) is told by its protocol."""
    for node in file.tree.body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        if ast.get_docstring(node) is None and not _is_stub(node):
            yield f"{node.lineno}: {node.name} has no docstring"


def _is_stub(node: Function | ast.ClassDef) -> bool:
    (first, *rest) = node.body
    return not rest and isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)


def claimed(file: Source) -> Iterator[str]:
    """Each test says in one sentence what holds."""
    for node in functions(file):
        if not node.name.startswith("test_"):
            continue
        claim = ast.get_docstring(node)
        if claim is None:
            yield f"{node.lineno}: {node.name} doesn't say what holds"
        elif not claim.rstrip().endswith("."):
            yield f"{node.lineno}: {node.name}: a claim is a sentence"


EVERYWHERE: tuple[Rule, ...] = (
    short_files,
    short_functions,
    narrow_lines,
    no_banned_words,
    headed,
)
SHIPPED: tuple[Rule, ...] = (*EVERYWHERE, quiet, documented)
TESTING: tuple[Rule, ...] = (*EVERYWHERE, claimed)

PRODUCT = sources("engine", "sim")
TESTS = sources("tests")

DEBTS: Mapping[tuple[str, str], str] = {}
"""Known breaches (module, rule), each with what is to be done. A debt that is paid must be taken off."""


@pytest.mark.parametrize("file", [*PRODUCT, *TESTS], ids=lambda file: file.path)
def test_files_keep_the_house_rules(file: Source) -> None:
    """Every file keeps every rule; a debt that is owed no more is taken off."""
    for rule in SHIPPED if file in PRODUCT else TESTING:
        found = list(rule(file))
        if (file.module, rule.__name__) in DEBTS:
            assert found != [], f"the debt of {rule.__name__} is paid: take it off"
        else:
            assert found == [], rule.__doc__


# --- tests mirror modules ----------------------------------------------------------------------------

WHOLE = (
    "tests.engine.test_interrupted_engines",
    "tests.engine.test_storms",
    "tests.engine.test_two_processes",
    "tests.sim.test_reproducible",
    "tests.sim.test_scenarios_run",
)
"""Tests of whole runs; those of the whole tree stand beside the packages."""


def mirrored(test: str, modules: list[str]) -> bool:
    """Whether a test module is named for a module of the package it stands for.

    `tests.engine.test_store_batch` is for `engine.store.batch`, `tests.engine.test_claims_grants` for
    `engine.claims`; contract suites and a package's own tests are named for a package.
    """
    _, package, name = test.split(".")[0], test.split(".")[1], test.rpartition(".test_")[2]
    names = ["_".join(module.split(".")[1:]) for module in modules if module.split(".")[0] == package]
    short = [module.split(".")[-1] for module in modules if module.split(".")[0] == package]
    packages = [part for module in modules for part in module.split(".")[1:-1]]
    return any(each and (name == each or name.startswith(each + "_")) for each in [*names, *short, *packages])


@pytest.mark.parametrize(
    "module",
    [f.module for f in TESTS if re.search(r"\.\w+\.test_", f.module) and f.module not in WHOLE],
)
def test_test_modules_mirror_modules(module: str) -> None:
    """From the name of a test a reader finds what it tests."""
    owed = (module, "mirrors") in DEBTS
    assert mirrored(module, [file.module for file in PRODUCT]) is not owed


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("tests.engine.test_claims", True),
        ("tests.engine.test_claims_grants", True),
        ("tests.engine.test_store_batch", True),
        ("tests.engine.test_batch", True),
        ("tests.sim.test_scenario_mistakes", True),
        ("tests.contracts.test_store_contract", True),
        ("tests.engine.test_everything", False),
        ("tests.engine.test_claim", False),
        ("tests.sim.test_claims", False),
    ],
)
def test_the_mirror_finds_what_has_no_counterpart(test: str, found: bool) -> None:
    """The rule itself, on names that fit and names that don't."""
    modules = ["engine.claims", "engine.store.batch", "sim.scenario.read", "sim.kernel"]
    assert mirrored(test, modules) is found


# --- each rule on a bad snippet ----------------------------------------------------------------------

GOOD = '''"""A module."""

from __future__ import annotations


def answer() -> int:
    """The answer."""
    return 42
'''

BAD: dict[str, tuple[Rule, str, str]] = {
    "a long file": (short_files, "x = 1\n" * LINES_MAX, "400 lines"),
    "a long function": (short_functions, "def f():\n" + "    x = 1\n" * 59, "1: f has 60 lines"),
    "a long method": (
        short_functions,
        "class C:\n  async def m(self):\n" + "    x = 1\n" * 59,
        "2: m has 60",
    ),
    "a wide line": (narrow_lines, f"x = 1\ny = '{'a' * 110}'", "2: 116 characters"),
    "a word": (no_banned_words, "x = 1  # TO" + "DO later", "1: TO"),
    "a machine's path": (no_banned_words, "x = '/ho" + "me/me'", "no paths"),
    "a print": (quiet, "def f():\n    print(1)", "2: only commands"),
    "no docstring": (headed, "from __future__ import annotations", "no docstring"),
    "no future": (headed, '"""Doc."""\nimport math', "no `from __future__"),
    "a bare function": (documented, "def f():\n    return 1", "1: f has no docstring"),
    "a bare class": (documented, "class C:\n    x = 1", "1: C has no docstring"),
    "a bare test": (claimed, "def test_f():\n    assert 1", "1: test_f doesn't say"),
    "a nested test": (
        claimed,
        "class T:\n    async def test_f(self):\n        assert 1",
        "2: test_f doesn't",
    ),
    "half a claim": (claimed, 'def test_f():\n    """Works"""\n    assert 1', "a claim is a sentence"),
}


@pytest.mark.parametrize("case", BAD)
def test_each_rule_finds_its_breach(case: str) -> None:
    """The rules themselves: each finds what it is for, and says where."""
    rule, text, said = BAD[case]
    (found,) = rule(source(text))
    assert said in found


@pytest.mark.parametrize("rule", dict.fromkeys([*SHIPPED, *TESTING]), ids=lambda rule: rule.__name__)
def test_each_rule_lets_good_code_pass(rule: Rule) -> None:
    """A plain module breaks nothing, and neither does an empty one."""
    assert list(rule(source(GOOD))) == []
    assert list(rule(source(""))) == []


def test_what_is_excepted_passes() -> None:
    """Commands print, stubs and private names need no docstring, and one line less is short enough."""
    assert list(quiet(source("print(1)", "sim.__main__"))) == []
    assert list(documented(source("def f(): ...\ndef _g():\n    return 1\nclass C:\n    '''Doc.'''"))) == []
    assert list(short_files(source("x = 1\n" * (LINES_MAX - 1)))) == []
    assert list(short_functions(source("def f():\n" + "    x = 1\n" * 58))) == []
    assert list(narrow_lines(source("x" * WIDTH_MAX))) == []
