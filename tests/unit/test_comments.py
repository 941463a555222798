"""Comments and docstrings: a reason stands above its line, as a plain sentence; behind the code is room for a name."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import zkconcurrent

PACKAGE = Path(zkconcurrent.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
WORDS = 5
FOR_TOOLS = ("# type:", "# noqa", "# pragma")
START = r"(?:^|[.!?:] )"
# A phrase that a reader must read twice, a plain one in its place, and a sentence that has it.
ODD = {
    START + r"(?:Nor|Else)\b": ("Neither, or Otherwise, with a verb", "Else its thread would go on."),
    START + r"Only now\b": ("the reason first", "R2. Only now: until it is told, the owner must find it."),
    START + r"But for\b": ("Except for", "But for the first, all wait."),
    START + r"Of (?:a|an|another)\b": ("For a", "Of a transaction, the largest part."),
    r"\bcan(?:'t|not) be (?:told|said)\b": ("it is unknown", "Whether it was applied can't be told."),
    r"\bcan(?:'t|not) be[.,;)]": ("say what can't be done", "If that can't be, return the code."),
    r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer\b|more than\b|such\b|other\b|less\b|later\b|older\b)": (
        "is not a, or has ended",
        "Refuse what is no listener.",
    ),
    r"\bso (?:many|much|few|long|often)\b(?! as\b)(?!(?:\W+\w+){0,4}\W+that\b)": (
        "the constant's name, or that many",
        "At most so many deletes are under way.",
    ),
    r"\bat the moment\b(?! (?:when|at|of|in)\b)|\bjust now\b": ("now, or nothing", "A caller is sending just now."),
    r"\bby now\b|\byet to\b": ("already; still has to", "The nodes that have yet to be read."),
    r"\b(?:[Nn]obody|[Ss]omebody)\b": ("no client, a waiter", "Return None if nobody listens."),
    r"\bfor ever\b": ("forever", "None waits for ever."),
    r"\bonce that (?:is|has|was|had)\b": ("once the ...", "Called once that is known."),
    r"\bhears? of\b|\bheard of\b": ("learns of, hears from", "The watches that hear of an event."),
    r"\btells? of\b|\btold of\b": ("shows, reports, logs", "The log tells of a long wait."),
    r"\b(?:what|What) is so\b": ("the state", "Return what is so."),
    r"\b[Ss]uch (?:a )?one\b": ("name the thing", "Such a one is refused."),
}


@cache
def comments(file: Path) -> list[tokenize.TokenInfo]:
    """Return the comments of a file, without those for tools."""
    with file.open("rb") as text:
        tokens = [token for token in tokenize.tokenize(text.readline) if token.type == tokenize.COMMENT]
    return [each for each in tokens if not each.string.startswith(FOR_TOOLS)]


def prose(file: Path) -> Iterator[tuple[int, str]]:
    """Yield each docstring, and each block of comments, with its line; quotations and code are left out."""
    blocks: dict[int, tuple[int, str]] = {}
    for each in comments(file):
        line, text = blocks.pop(each.start[0] - 1, (each.start[0], ""))
        blocks[each.start[0]] = line, f"{text} {each.string.lstrip('#: ')}"
    strings = [node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Expr)]
    docs = [(each.lineno, each.value) for each in strings if isinstance(each, ast.Constant)]
    for line, text in [*blocks.values(), *((line, text) for line, text in docs if isinstance(text, str))]:
        for paragraph in re.split(r"\n\s*\n", re.sub(r'`[^`]*`|"[^"]*"', "X", text)):
            yield line, " ".join(paragraph.split())


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_trailing_comments_are_short(file: Path) -> None:
    """None has more than five words."""
    trailing = [each for each in comments(file) if each.line[: each.start[1]].strip()]
    assert [each.string for each in trailing if len(each.string.split()) > WORDS + 1] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_sentences_are_plain(file: Path) -> None:
    """None has a phrase of the table, which says what is plainer."""
    found = [
        f"{line}: {odd.group().strip()!r}, better {plain}: ...{text[max(0, odd.start() - 40) : odd.end() + 40]}..."
        for line, text in prose(file)
        for pattern, (plain, _) in ODD.items()
        for odd in re.finditer(pattern, text)
    ]
    assert found == []


@pytest.mark.parametrize("pattern", ODD)
def test_the_table_finds_its_examples(pattern: str) -> None:
    """Each pattern finds the sentence beside it."""
    assert re.search(pattern, ODD[pattern][1])
