"""The fault list is complete: each number is a row of its own, and each fault has tests that carry its number."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.page import script

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
faults = script("faults")
PAGE = (DOCS / "explanation" / "faults.md").read_text()
NAMES = {int(number): name for _, number, name, _ in faults.ROW.findall(PAGE)}


def test_a_number_stands_for_one_fault() -> None:
    """Numbers ascend below each heading; a retired one stays free. No row is written in another form."""
    for section in PAGE.split("\n## "):
        numbers = [int(number) for _, number, *_ in faults.ROW.findall(section)]
        assert numbers == sorted(numbers)
        assert len(re.findall(r"^\| \d", section, re.MULTILINE)) == len(numbers)
    assert len(NAMES) == len(faults.ROW.findall(PAGE))


def test_a_fault_has_a_name() -> None:
    """Each has a short one of its own, by which other rows cite it."""
    assert [number for number, name in NAMES.items() if len(name) > 50] == []
    assert len(set(NAMES.values())) == len(NAMES)


def test_no_number_stands_for_a_fault() -> None:
    """A number means something in the list and at the tests alone: no other page cites it."""
    pages = [page for page in DOCS.rglob("*.md") if page.name != "faults.md"]
    assert [page.name for page in pages if re.search(r"\b[Ff]aults? \d", page.read_text())] == []


def test_the_tests_that_pages_name_are_there() -> None:
    """Each test, or file below `tests`, that a page names exists."""
    named = [
        (file, test)
        for page in [*DOCS.rglob("*.md"), ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
        for file, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text())
    ]
    assert named
    missing = [
        (file, test)
        for file, test in named
        if not (ROOT / file).exists() or (test and f"def {test}(" not in (ROOT / file).read_text())
    ]
    assert missing == []


def test_each_fault_has_a_test() -> None:
    """Each row has a test that carries its number, and each number that a test carries has a row."""
    assert set(NAMES) == set(faults.marked())


def test_the_page_is_made_from_the_marks() -> None:
    """Its last column is just what is made now: after a change of a mark, run `python docs/faults.py`."""
    assert faults.page() == PAGE
