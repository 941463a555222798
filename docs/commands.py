"""The reference of the command, made from its parser: what `--help` says, on one page.

The page is kept beside the others, for viewers that build nothing; the build makes it anew, and
`tests/docs/test_commands.py` compares. The text of `--help`
itself would not do: its form differs between versions of Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from zkconcurrent._command.arguments import _SERVER, commands, parser

FILE = Path(__file__).parent / "reference" / "command.md"
_HEAD = """\
# The command

Made by `docs/commands.py` from what `zkconcurrent COMMAND --help` says. [Run a job under a lock, and see who holds
it](../how-to/command.md) shows how to use it.

Each command but `completion` needs the URL of a server, such as `zk://host1,host2:2182/app?timeout=30`. It is in
`$ZKCONCURRENT_URL`, behind `--url` (where a password shows in `ps`), or in the first line of a file: `--url-file FILE`.
"""
_OF_ALL = ("help", "url", "url_file")
_COUNTS = {None: "{}", "?": "[{}]", "+": "{}..."}


def page() -> str:
    """Return the text of the page."""
    return "\n".join([_HEAD, *(line for name, each in commands(parser()).items() for line in _section(name, each))])


def _section(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    options, arguments = [], []
    for action in command._actions:
        if action.help != argparse.SUPPRESS and action.dest not in _OF_ALL:
            (options if action.option_strings else arguments).append(action)
    words = [*(["[options]"] if options else []), *(_COUNTS[each.nargs].format(_value(each)) for each in arguments)]
    yield f"## {name}\n"
    yield f"```text\n{command.usage or ' '.join([command.prog, *words])}\n```\n"
    yield f"{(command.description or '').replace(f' {_SERVER}', '')}\n"
    rows = [(_value(each), each.help) for each in arguments if each.help]
    rows += [(_option(each), each.help) for each in options]
    if rows:
        yield "| | |\n| --- | --- |"
        yield from (f"| `{what}` | {tells} |" for what, tells in rows)
        yield ""


def _option(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {_value(action)}"


def _value(action: argparse.Action) -> str:
    return action.metavar if isinstance(action.metavar, str) else f"{{{','.join(action.choices or ())}}}"


def write() -> None:
    """Write the page, unless it is right already."""
    if not FILE.exists() or FILE.read_text() != page():
        FILE.write_text(page())


if __name__ == "__main__":
    write()
