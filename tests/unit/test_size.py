"""The library, its tests and its fault list stay within the bounds in CONTRIBUTING, or grow by a decision."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import zkconcurrent

ROOT = Path(__file__).parents[2]
PACKAGE = Path(zkconcurrent.__file__).parent
FAULTS = ROOT / "docs" / "explanation" / "faults.md"
MODULE, CLASS = 350, 300
# All but the public names of named tuples and enums, and `os._exit`.
PRIVATE = re.compile(r"_(?!_|(make|asdict|replace|fields|field_defaults|name_|value_|exit)$)")
OWN = ("self", "cls", "super()", "type(self)")
WITH_DOCSTRINGS = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def parsed(file: Path) -> tuple[ast.Module, frozenset[int]]:
    """Return a module's tree, and the numbers of its lines of code: no docstrings, comments or blanks."""
    text = file.read_text()
    tree = ast.parse(text)
    lines = {n for n, line in enumerate(text.splitlines(), 1) if not re.match(r"\s*(#|$)", line)}
    for node in ast.walk(tree):
        if isinstance(node, WITH_DOCSTRINGS) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines -= {*range(docstring.lineno, (docstring.end_lineno or 0) + 1)}
    return tree, frozenset(lines)


def others_attributes(tree: ast.Module) -> Iterator[str]:
    """Return the private attributes of other objects that a module names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and PRIVATE.match(node.attr) and ast.unparse(node.value) not in OWN:
            yield ast.unparse(node)


def measured() -> dict[str, float]:
    """Return each measure of the table, by its name there."""
    files = [*PACKAGE.rglob("*.py")]
    trees = [parsed(file)[0] for file in files]
    classes = [
        sum(node.lineno <= line <= (node.end_lineno or 0) for line in parsed(file)[1])
        for file in files
        for node in ast.walk(parsed(file)[0])
        if isinstance(node, ast.ClassDef)
    ]
    return {
        "modules at the root of the package, beside `__init__`": sum(
            file.stem != "__init__" for file in PACKAGE.glob("*.py")
        ),
        "lines of code, without docstrings and comments": sum(len(parsed(file)[1]) for file in files),
        "statements": sum(isinstance(node, ast.stmt) for tree in trees for node in ast.walk(tree)),
        f"modules of more than {MODULE} lines of code": sum(len(parsed(file)[1]) > MODULE for file in files),
        f"classes of more than {CLASS}": sum(each > CLASS for each in classes),
        "uses of another object's private attribute": sum(len([*others_attributes(tree)]) for tree in trees),
        "public names of `zkconcurrent`": len(zkconcurrent.__all__),
        "lines of the tests": sum(len(file.read_text().splitlines()) for file in (ROOT / "tests").rglob("*.py")),
        "faults in the list": len(re.findall(r"^\| \d", FAULTS.read_text(), re.MULTILINE)),
    }


def test_the_library_stays_within_its_bounds() -> None:
    """Each measure is within the bound that the table gives; the table has all of them."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| ([\d,.]+) \|$", page.partition("## Size")[2].partition("\n## ")[0], re.M)
    bounds = {name: float(bound.replace(",", "")) for name, bound in rows}
    found = measured()
    assert found.keys() == bounds.keys()
    assert {name: value for name, value in found.items() if value > bounds[name]} == {}
