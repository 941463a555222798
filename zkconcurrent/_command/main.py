"""`main`: the one entry, of `zkconcurrent` and of `python -m zkconcurrent`."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Sequence

from .outcome import BUG, BY_SIGNAL, USAGE, CommandError, die_of, say, settle_streams


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    began = time.monotonic()
    from .arguments import parse

    settle_streams()
    try:
        if os.name != "posix":
            raise CommandError(USAGE, "usage", "this command needs a POSIX system")
        found = parse(sys.argv[1:] if argv is None else argv)
        if found.do == "run":
            from .run import run

            return run(found, began)
        if found.do == "break":
            from .break_hold import break_hold

            return break_hold(found)
        if found.do == "deadlocks":
            from .deadlocks import deadlocks

            return deadlocks(found)
        if found.do == "doctor":
            from .doctor import doctor

            return doctor(found)
        if found.do == "timeline":
            from .timeline import timeline

            return timeline(found)
        return _look(found)
    except CommandError as error:
        say(str(error))
        return error.code
    except KeyboardInterrupt:
        die_of(signal.SIGINT)
        return BY_SIGNAL + signal.SIGINT
    except BrokenPipeError:
        # As other programs end that write to a `head`: quietly, and by this signal.
        die_of(signal.SIGPIPE)
        return BY_SIGNAL + signal.SIGPIPE
    except Exception:
        traceback.print_exc()
        say("this is a bug of zkconcurrent")
        return BUG


def _look(found: Namespace) -> int:
    """Do what only looks; return the exit code."""
    if found.do == "top":
        from .top import top

        return top(found)
    if found.do == "export":
        from .export import export

        return export(found)
    if found.do == "completion":
        from .completion import completion

        return completion(found)
    from . import look

    return look.ls(found) if found.do == "ls" else look.show(found)
