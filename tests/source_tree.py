"""The project's own source files, as the tests of its shape read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

ROOT = Path(__file__).parent.parent


@attrs.frozen(kw_only=True, eq=False)
class Source:
    """One file: its dotted module name, its path below the root, its text and its syntax tree."""

    module: str
    path: str
    text: str
    tree: ast.Module


def source(text: str, module: str = "engine.sample") -> Source:
    """A source that stands in no file."""
    return Source(module=module, path=module.replace(".", "/") + ".py", text=text, tree=ast.parse(text))


def sources(*packages: str) -> list[Source]:
    """All files of the packages, in the order of their names."""
    found: list[Source] = []
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            relative = path.relative_to(ROOT)
            module = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
            text = path.read_text(encoding="utf-8")
            found.append(Source(module=module, path=str(relative), text=text, tree=ast.parse(text)))
    return found


def is_within(module: str, names: Sequence[str]) -> bool:
    """Whether `module` is one of `names`, or inside a package that is."""
    return any(module == name or module.startswith(name + ".") for name in names)


def running_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that exists at run time: what stands under `if TYPE_CHECKING` is left out."""
    for child in ast.iter_child_nodes(tree):
        if (
            isinstance(child, ast.If)
            and isinstance(child.test, ast.Name)
            and child.test.id == "TYPE_CHECKING"
        ):
            continue
        yield child
        yield from running_nodes(child)
