"""The fault list is complete: each number is a row of its own, and each fault names tests that exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
EXPLANATION = TESTS.parent / "docs" / "explanation"
_ROW = re.compile(r"^\| (\d+)(?: S)? \| (?:\*\*(.+?)\*\*: )?(.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_NAME = re.compile(r"`(\w+/\w+\.py(?:::\w+)?)`")
_CITED = re.compile(r"Faults? (\d+(?:, \d+)*)[:.]")
ROWS = _ROW.findall((EXPLANATION / "faults.md").read_text())


@functools.cache
def documented(file: Path) -> dict[str, str]:
    """Return the docstrings of a file of tests: its own, by "", and those of its tests."""
    tree = ast.parse(file.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    tests = [node for node in functions if node.name.startswith("test_")]
    return {"": ast.get_docstring(tree) or "", **{test.name: ast.get_docstring(test) or "" for test in tests}}


def test_a_number_stands_for_one_fault() -> None:
    """The numbers ascend in the order of the page; a retired one stays free. No row is written in another form."""
    numbers = [int(number) for number, *_ in ROWS]
    assert numbers == sorted(set(numbers))
    assert len(re.findall(r"^\| \d", (EXPLANATION / "faults.md").read_text(), re.MULTILINE)) == len(ROWS)


def test_a_fault_has_a_name() -> None:
    """Each has a short one of its own, by which other pages cite it."""
    names = [name for _, name, *_ in ROWS]
    assert [number for number, name, *_ in ROWS if not name or len(name) > 50] == []
    assert sorted(set(names)) == sorted(names)


def test_the_guarantees_cite_faults_by_name() -> None:
    """What a guarantee is shown by is in the list under that name; no number stands for a fault."""
    page = (EXPLANATION / "guarantees.md").read_text()
    shown = re.findall(r"\*\*Shown by\*\* the faults? (\*[^;]+\*);", page)
    cited = [name for run in shown for name in re.findall(r"\*([^*]+)\*", " ".join(run.split()))]
    assert len(shown) > 15
    assert set(cited) <= {name for _, name, *_ in ROWS}
    assert not re.findall(r"[Ff]aults? \d", page)


def test_a_fault_names_its_tests() -> None:
    """The last cell of each row names tests, or files of them, and nothing else."""
    others = {number: _NAME.sub("", shown_by).replace(", ", "") for number, *_, shown_by in ROWS}
    assert {number: text for number, text in others.items() if text} == {}
    assert [number for number, *_, shown_by in ROWS if not _NAME.findall(shown_by)] == []


@pytest.mark.parametrize("page", ["faults.md", "guarantees.md"])
def test_what_is_named_is_there(page: str) -> None:
    """Each test that the pages on faults and guarantees name exists."""
    missing = []
    for name in sorted(set(_NAME.findall((EXPLANATION / page).read_text()))):
        file, _, test = name.partition("::")
        if not (TESTS / file).exists() or test not in documented(TESTS / file):
            missing.append(name)
    assert not missing


def test_a_test_cites_a_fault_of_the_list() -> None:
    """The number that a test's docstring begins with is one of the list's."""
    numbers = {int(number) for number, *_ in ROWS}
    for file in TESTS.rglob("test_*.py"):
        for name, docstring in documented(file).items():
            if cited := _CITED.match(docstring):
                assert set(map(int, cited[1].split(", "))) <= numbers, f"{file}::{name}"
