"""The reference leaves nothing out, and the pages are found."""

from __future__ import annotations

import re
from pathlib import Path

import zkconcurrent
import zkconcurrent.testing
from zkconcurrent import aio

DOCS = Path(__file__).parents[2] / "docs"
PUBLIC = [
    *(f"zkconcurrent.{name}" for name in zkconcurrent.__all__ if name != "__version__"),
    *(f"zkconcurrent.aio.{name}" for name in aio.__all__),
    *(f"zkconcurrent.testing.{name}" for name in zkconcurrent.testing.__all__),
]


def test_every_public_name_is_in_the_reference() -> None:
    """Every public name has its entry in docs/reference, made from its docstring."""
    pages = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    made = set(re.findall(r"^\.\. auto\w+:: (\S+)$", pages, re.MULTILINE))
    assert set(PUBLIC) - made == set()


def test_every_page_is_linked() -> None:
    """The index names each page twice: as a link for readers of the source, and in a tree for the built pages."""
    index = (DOCS / "index.md").read_text()
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")} - {"index"}
    trees = {line for tree in re.findall(r"```{toctree}\n(.*?)```", index, re.DOTALL) for line in tree.splitlines()}
    assert pages <= trees
    assert {name for name in pages if f"({name}.md)" in index} == pages
