"""`completion`: a script by which bash and zsh complete commands and options, generated from the parser."""

from __future__ import annotations

import argparse
from argparse import Namespace

from .arguments import commands, parser
from .outcome import write

# The shell itself completes file names, and everything after `--`.
_SCRIPT = """\
_zkconcurrent() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words="{commands}" each
    COMPREPLY=()
    for each in "${{COMP_WORDS[@]:1:$COMP_CWORD-1}}"; do
        case $each in
            --) return ;;
{options}
        esac
    done
    [[ $words == -* && $word != -* ]] || COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _zkconcurrent zkconcurrent
"""
_BEFORE = {"bash": "", "zsh": "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"}


def completion(found: Namespace) -> int:
    """Write the script."""
    write(_BEFORE[found.shell] + script(parser()))
    return 0


def script(whole: argparse.ArgumentParser) -> str:
    """Return the script."""
    lines = [f'{" " * 12}{name}) words="{" ".join(_options(each))}" ;;' for name, each in commands(whole).items()]
    return _SCRIPT.format(commands=" ".join(commands(whole)), options="\n".join(lines))


def _options(command: argparse.ArgumentParser) -> list[str]:
    return [
        option for action in command._actions if action.help != argparse.SUPPRESS for option in action.option_strings
    ]
