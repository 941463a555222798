"""The diagrams are those that the rules draw."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.page import script

DOCS = Path(__file__).parents[2] / "docs"
diagrams = script("diagrams")


@pytest.mark.parametrize("name", diagrams.SCENES)
def test_a_picture_is_what_the_rules_say(name: str) -> None:
    """The file beside the page is just what is drawn now."""
    assert (diagrams.FOLDER / f"{name}.svg").read_text() == diagrams.draw(diagrams.SCENES[name])


def test_the_page_shows_them_all() -> None:
    """No picture is there for nothing, and each has its title as the text in its place."""
    page = (DOCS / "explanation" / "recipes.md").read_text()
    shown = {name: text for text, name in re.findall(r"!\[(.*?)\]\(diagrams/(.*?)\.svg\)", page, re.DOTALL)}
    assert {name: " ".join(text.split()) for name, text in shown.items()} == {
        name: scene.title for name, scene in diagrams.SCENES.items()
    }
