"""The fault list is complete: each number is a row of its own, and each fault has tests that carry its number."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.page import script

TESTS = Path(__file__).parents[1]
EXPLANATION = TESTS.parent / "docs" / "explanation"
faults = script("faults")
PAGE = (EXPLANATION / "faults.md").read_text()
NAMES = {int(number): name for _, number, name, _ in faults.ROW.findall(PAGE)}


def test_a_number_stands_for_one_fault() -> None:
    """Numbers ascend below each heading; a retired one stays free. No row is written in another form."""
    for section in PAGE.split("\n## "):
        numbers = [int(number) for _, number, *_ in faults.ROW.findall(section)]
        assert numbers == sorted(numbers)
        assert len(re.findall(r"^\| \d", section, re.MULTILINE)) == len(numbers)
    assert len(NAMES) == len(faults.ROW.findall(PAGE))


def test_a_fault_has_a_name() -> None:
    """Each has a short one of its own, by which other pages cite it."""
    assert [number for number, name in NAMES.items() if len(name) > 50] == []
    assert len(set(NAMES.values())) == len(NAMES)


def test_the_guarantees_cite_faults_by_name() -> None:
    """What a guarantee is shown by is in the list under that name; no number stands for a fault."""
    page = (EXPLANATION / "guarantees.md").read_text()
    shown = re.findall(r"\*\*Shown by\*\* the faults? (\*[^;]+\*);", page)
    cited = [name for run in shown for name in re.findall(r"\*([^*]+)\*", " ".join(run.split()))]
    assert len(shown) > 15
    assert set(cited) <= set(NAMES.values())
    assert not re.findall(r"[Ff]aults? \d", page)


def test_the_tests_of_the_guarantees_are_there() -> None:
    """Each test, or file of tests, that the page on guarantees names exists."""
    named = re.findall(r"`(\w+/\w+\.py)(?:::(\w+))?`", (EXPLANATION / "guarantees.md").read_text())
    assert named
    missing = [
        (file, test)
        for file, test in named
        if not (TESTS / file).exists() or (test and f"def {test}(" not in (TESTS / file).read_text())
    ]
    assert missing == []


def test_each_fault_has_a_test() -> None:
    """Each row has a test that carries its number, and each number that a test carries has a row."""
    assert set(NAMES) == set(faults.marked())


def test_the_page_is_made_from_the_marks() -> None:
    """Its last column is just what is made now: after a change of a mark, run `python docs/faults.py`."""
    assert faults.page() == PAGE
