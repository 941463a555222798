"""The last column of the fault list, made from the marks at the tests: a fault is shown by the files with its number.

A test of fault 12 carries `@pytest.mark.fault(12)`, a file `pytestmark = pytest.mark.fault(12)`. The page itself keeps
the number, the name and the promise of each row; `tests/docs/test_faults.py` compares its last column with the marks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
FILE = ROOT / "docs" / "explanation" / "faults.md"
ROW = re.compile(r"^(\| (\d+)(?: S)? \| \*\*(.+?)\*\*: (?:.+?) \| (?:.+?) \|)(.*)$", re.MULTILINE)


@cache
def marked() -> dict[int, list[str]]:
    """Return the files with tests of each fault, by its number, without `tests/` and `.py`."""
    files: dict[int, list[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for number in sorted(set(_numbers(file))):
            files.setdefault(number, []).append(str(file.relative_to(TESTS).with_suffix("")))
    return files


def _numbers(file: Path) -> Iterator[int]:
    text = file.read_text()
    for node in ast.walk(ast.parse(text)) if "mark.fault(" in text else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
            yield from (ast.literal_eval(each) for each in node.args)


def page() -> str:
    """Return the text of the page, with the last column as the marks have it."""
    files = marked()

    def row(match: re.Match[str]) -> str:
        return f"{match[1]} {', '.join(f'`{each}`' for each in files.get(int(match[2]), ()))} |"

    return ROW.sub(row, FILE.read_text())


if __name__ == "__main__":
    FILE.write_text(page())
