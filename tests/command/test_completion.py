"""`zkconcurrent completion`: a real bash completes commands and options by the script."""

from __future__ import annotations

import re
import sys

import pytest

from tests.command.conftest import Call, Run, end_of
from zkconcurrent._command.arguments import commands, parser

# As bash does when TAB is pressed: the words, and the number of the one at which the cursor is.
TAB = """
. <(%s -m zkconcurrent completion bash) || exit 9
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_zkconcurrent
printf '%%s\\n' "${COMPREPLY[@]}"
complete -p zkconcurrent >&2
"""


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("", list(commands(parser()))),
        ("s", ["show"]),
        ("x", [""]),
        ("ls --re", ["--recursive"]),
        ("doctor --", ["--help", "--url", "--url-file", "--scratch", "--json"]),
        ("run --on", ["--on-lost", "--once-per"]),
        # As bash cuts `--url=zk://h:1`, and the same without `=`.
        ("--url = zk : //h : 1 ls --re", ["--recursive"]),
        ("--url zk : //h : 1 s", ["show"]),
        # Refused, so not shown: -F.
        ("run --no", ["--nonblock"]),
        # What the shell completes itself.
        ("show /", [""]),
        ("run /path -- ls -", [""]),
    ],
)
def test_bash(start: Run, typed: str, completed: list[str]) -> None:
    """The words that begin as the one at the cursor; none in the command that `run` starts."""
    process = start("bash", "--norc", "-c", TAB % sys.executable, "bash", "zkconcurrent", *typed.split(" "))
    assert end_of(process) == (
        *(0, "".join(f"{word}\n" for word in completed)),
        "complete -o default -F _zkconcurrent zkconcurrent\n",
    )


def test_zsh(call: Call) -> None:
    """That of zsh is the same, behind a line that lets it read scripts of bash."""
    _, bash, _ = call("completion", "bash")
    code, zsh, err = call("completion", "zsh")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"autoload .*bashcompinit\n", zsh.removesuffix(bash))
