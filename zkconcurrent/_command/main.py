"""`main`: the one entry, of `zkconcurrent` and of `python -m zkconcurrent`."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib import import_module

from .outcome import CommandError, Exit, die_of, lacks_threads, say, settle_streams

# The module and the function of each command that are not named as the command.
_ELSEWHERE = {"break": ("break_hold", "break_hold"), "show": ("ls", "show")}


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    began = time.monotonic()
    settle_streams()
    try:
        # Here, so that Ctrl-C meanwhile ends the command as later.
        from .arguments import parse

        if os.name != "posix":
            raise CommandError(Exit.USAGE, "this command needs a POSIX system")
        found = parse(sys.argv[1:] if argv is None else argv)
        found.began = began
        # A command has a module of its own, but `show` is beside `ls`; it is loaded only if it is asked for.
        module, function = _ELSEWHERE.get(found.do, (found.do, found.do))
        do: Callable[[Namespace], int] = getattr(import_module(f".{module}", __package__), function)
        return do(found)
    except CommandError as error:
        say(str(error))
        return error.code
    except KeyboardInterrupt as error:
        # Python's own has no argument; a command's may have another signal.
        return die_of(*error.args or (signal.SIGINT,))
    except BrokenPipeError:
        # As other programs end that write to a `head`: quietly, and by this signal.
        return die_of(signal.SIGPIPE)
    except Exception as error:
        if lacks_threads(error):
            say("no thread can be started")
            return Exit.NO_PROCESS
        traceback.print_exc()
        say("this is a bug of zkconcurrent")
        return Exit.BUG
