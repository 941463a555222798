"""The guarantees are as good as their tests: each is named in the docs, and each fault has some."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "explanation" / "guarantees.md"
# Those of the project's list: lost answers, expiries, pauses, kills, forks, dead links, elections, and the rest.
FAULTS = range(1, 44)
_NAMES = re.compile(r"Faults? (\d+(?:, \d+)*)[:.]")


def documented(file: Path) -> dict[str, str]:
    """Return the docstrings of a file of tests: its own, by "", and those of its tests."""
    tree = ast.parse(file.read_text())
    tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return {"": ast.get_docstring(tree) or "", **{test.name: ast.get_docstring(test) or "" for test in tests}}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(\w+/\w+\.py(?:::\w+)?)`", PAGE.read_text()))))
def test_what_is_named_is_there(name: str) -> None:
    """Each test that the page on guarantees names exists."""
    file, _, test = name.partition("::")
    assert test in documented(TESTS / file)


def test_no_fault_is_without_a_test() -> None:
    """Each fault is named by the docstring of a test, or of a file of them."""
    named: set[int] = set()
    for file in TESTS.rglob("test_*.py"):
        for docstring in documented(file).values():
            if said := _NAMES.match(docstring):
                named.update(map(int, said[1].split(", ")))
    assert named == set(FAULTS)
