"""The reference of the command is what its parser says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location("commands", Path(__file__).parents[2] / "docs" / "commands.py")
assert _spec is not None
assert _spec.loader is not None
commands = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(commands)


def test_the_page_is_what_the_parser_says() -> None:
    """The file is just what is made now: after a change of an option, run `python docs/commands.py`."""
    assert commands.FILE.read_text() == commands.page()
