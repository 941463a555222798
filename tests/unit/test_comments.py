"""Comments: a reason stands above its line, as a sentence; behind the code there is room for a unit or a name."""

from __future__ import annotations

import tokenize
from pathlib import Path

import pytest

import zkconcurrent

PACKAGE = Path(zkconcurrent.__file__).parent
WORDS = 5
FOR_TOOLS = ("# type:", "# noqa", "# pragma")


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_trailing_comments_are_short(file: Path) -> None:
    """None has more than five words."""
    with file.open("rb") as text:
        comments = [token for token in tokenize.tokenize(text.readline) if token.type == tokenize.COMMENT]
    trailing = [each for each in comments if each.line[: each.start[1]].strip()]
    long = [each.string for each in trailing if len(each.string.split()) > WORDS + 1]
    assert [each for each in long if not each.startswith(FOR_TOOLS)] == []
