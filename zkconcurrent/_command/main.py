"""`main`: the entry point of both `zkconcurrent` and `python -m zkconcurrent`."""

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

# The module and the function of each command whose module or function has a different name.
_ELSEWHERE = {"break": ("break_hold", "break_hold"), "show": ("ls", "show")}


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    began = time.monotonic()
    settle_streams()
    try:
        # Imported here, so that Ctrl-C during the import ends the command as it does later.
        from .arguments import parse

        if os.name != "posix":
            raise CommandError(Exit.USAGE, "this command needs a POSIX system")
        found = parse(sys.argv[1:] if argv is None else argv)
        found.began = began
        # Each command has its own module, except that `show` is in `ls`. Only the module that is needed is loaded.
        module, function = _ELSEWHERE.get(found.do, (found.do, found.do))
        do: Callable[[Namespace], int] = getattr(import_module(f".{module}", __package__), function)
        return do(found)
    except CommandError as error:
        say(str(error))
        return error.code
    except KeyboardInterrupt as error:
        # Python's own KeyboardInterrupt has no argument; one that a command raises may carry another signal.
        return die_of(*error.args or (signal.SIGINT,))
    except BrokenPipeError:
        # End quietly, by SIGPIPE, as other programs do when their reader is gone.
        return die_of(signal.SIGPIPE)
    except Exception as error:
        if lacks_threads(error):
            say("no thread can be started")
            return Exit.NO_PROCESS
        traceback.print_exc()
        say("this is a bug of zkconcurrent")
        return Exit.BUG
