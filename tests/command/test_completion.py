"""`zkconcurrent completion`: a real bash completes commands and options by the script."""

from __future__ import annotations

import re
import sys

from tests.command.conftest import Call, Run, end_of
from zkconcurrent._command.arguments import commands, parser

# As bash does when TAB is pressed: the words, and the number of the one at which the cursor is; here for each line.
TABS = """
. <(%s -m zkconcurrent completion bash) || exit 9
for line; do
    IFS=_ read -ra COMP_WORDS <<<"zkconcurrent_$line|"
    COMP_WORDS[-1]=${COMP_WORDS[-1]%%|}
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _zkconcurrent
    echo "${COMPREPLY[*]}"
done
complete -p zkconcurrent >&2
"""
TYPED = {
    "": list(commands(parser())),
    "s": ["show"],
    "x": [],
    "ls_--re": ["--recursive"],
    "doctor_--": ["--help", "--url", "--url-file", "--scratch", "--json"],
    "run_--on": ["--on-lost", "--once-per"],
    # As bash cuts `--url=zk://h:1`, and the same without `=`.
    "--url_=_zk_:_//h_:_1_ls_--re": ["--recursive"],
    "--url_zk_:_//h_:_1_s": ["show"],
    # Refused, so not shown: -F.
    "run_--no": ["--nonblock"],
    # What the shell completes itself.
    "show_/": [],
    "run_/path_--_ls_-": [],
}


def test_bash(start: Run) -> None:
    """The words that begin as the one at the cursor; none in the command that `run` starts."""
    code, out, err = end_of(start("bash", "--norc", "-c", TABS % sys.executable, "bash", *TYPED))
    assert (code, err) == (0, "complete -o default -F _zkconcurrent zkconcurrent\n")
    assert dict(zip(TYPED, map(str.split, out.splitlines()), strict=True)) == TYPED


def test_zsh(call: Call) -> None:
    """That of zsh is the same, behind a line that lets it read scripts of bash."""
    _, bash, _ = call("completion", "bash")
    code, zsh, err = call("completion", "zsh")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"autoload .*bashcompinit\n", zsh.removesuffix(bash))
