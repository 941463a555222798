"""The command line: its options and arguments; a wrong one ends the command with exit code 64."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

from .. import __version__
from .._client.connect import check_url
from .._client.url import VARIABLE as URL
from .outcome import CommandError, Exit, say

_SERVER = f"The server is the URL in ${URL}, such as zk://host1,host2:2182/app?timeout=30."
_RUN = f"""\
Run a command while holding a lock. {_SERVER}

The exit code is that of the command, or 128 + n if signal n ended it; 75 if the lock was not acquired in time, 76 if it
was lost before the command ended, 69 if ZooKeeper is out of reach, 77 if it refuses, 78 if the path is of another kind
or has another number of permits, 64 for a wrong use, 126 and 127 if the command can't be executed, or found."""

_LS = f"List who holds and who waits, at a path and below it. {_SERVER}"
_SHOW = f"Show who holds a path, who waits for it and behind whom, and what they hold meanwhile. {_SERVER}"

_DEADLOCKS = f"""\
Report deadlocks: rings of waits that lead through a path or what is below it. {_SERVER}

The exit code is 0 if there is none, 1 if there is one. Waits that it can't judge are listed as well."""

_DOCTOR = f"""\
Look for what would make locks fail, or slow: servers, session timeout, access rights, latency, paths. {_SERVER}

The exit code is 0 if all is fine, 1 if something would fail, 69 if ZooKeeper is out of reach."""

_BREAK = f"End one hold: ask its holder to release, wait, then delete its node. {_SERVER}"

_COMPLETION = """\
Write a script by which the shell completes commands and options. For bash, the line `. <(zkconcurrent completion bash)`
in ~/.bashrc reads it; for zsh, the same with zsh in ~/.zshrc."""


# Thirty years: system calls accept no timeout that is much longer.
_MOST_SECONDS = 1e9
# In seconds; `poll` accepts no timeout that is much longer.
_SHORTEST_INTERVAL, _LONGEST_INTERVAL = 0.1, 1e6


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CommandError(Exit.USAGE, f"{message}; see `{self.prog} --help`")


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    whole = _Parser(prog="zkconcurrent", description="Locks of a ZooKeeper: hold one, see who holds it.")
    whole.add_argument("--version", action="version", version=__version__)
    commands = whole.add_subparsers(dest="do", metavar="COMMAND", required=True)
    server = _Parser(add_help=False)
    # Each may stand before or after the command's name. A default in `server` would overwrite a value from `whole`.
    for each, missing in ((whole, None), (server, argparse.SUPPRESS)):
        each.add_argument("--url", metavar="URL", default=missing, help="the server; a password in it shows in `ps`")
        each.add_argument(
            "--url-file", metavar="FILE", default=missing, help="a file that has the server's URL in its first line"
        )
    add = partial(commands.add_parser, parents=[server])
    raw = argparse.RawDescriptionHelpFormatter
    _add_run(add("run", help="run a command under a lock", description=_RUN, formatter_class=raw, allow_abbrev=False))
    _add_ls_and_show(add)
    deadlocks = add("deadlocks", help="report rings of waits", description=_DEADLOCKS, formatter_class=raw)
    deadlocks.add_argument("path", nargs="?", default="/", metavar="PATH", help="where: / unless given")
    doctor = add("doctor", help="look for what would make locks fail", description=_DOCTOR, formatter_class=raw)
    doctor.add_argument("--scratch", metavar="PATH", help="try writes below this path, and remove what they made")
    for each in (deadlocks, doctor):
        each.add_argument("--json", action="store_true", help="as one document of JSON")
    ends = add("break", help="end a hold that will not end", description=_BREAK)
    ends.add_argument("path", metavar="PATH")
    ends.add_argument("--holder", type=_count, metavar="TOKEN", help="the hold: its fencing token, which `show` prints")
    ends.add_argument(
        "--grace", type=_seconds, default=10.0, metavar="SEC", help="how long to wait for its holder to release: 10"
    )
    ends.add_argument("-y", "--yes", action="store_true", help="do not ask")
    completion = commands.add_parser("completion", help="write a script that completes", description=_COMPLETION)
    completion.add_argument("shell", choices=("bash", "zsh"))
    return whole


def commands(whole: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command, in order."""
    (found,) = (each for each in whole._actions if isinstance(each, argparse._SubParsersAction))
    return dict(found.choices)


def _add_ls_and_show(add: Callable[..., argparse.ArgumentParser]) -> None:
    ls = add("ls", help="list who holds and who waits", description=_LS)
    ls.add_argument("path", nargs="?", default="/", metavar="PATH", help="where: / unless given")
    ls.add_argument("-r", "--recursive", action="store_true", help="all paths below, not only the next")
    ls.add_argument(
        "--sort",
        choices=("path", "waiters"),
        default="path",
        help="waiters: the busiest paths first; a line for each path, with its first contender",
    )
    ls.add_argument("--wide", action="store_true", help="tokens, sessions and names of nodes, too; nothing is cut")
    show = add("show", help="show one lock, with its queue", description=_SHOW)
    show.add_argument("path", metavar="PATH")
    for each in (ls, show):
        each.add_argument("--json", action="store_true", help="as one document of JSON; with --watch a line each time")
        each.add_argument("--watch", action="store_true", help="repeat until Ctrl-C")
        each.add_argument(
            "--interval", type=_interval, default=2.0, metavar="SEC", help="between two listings: 2, at least 0.1"
        )


def _add_run(run: argparse.ArgumentParser) -> None:
    run.usage = "zkconcurrent run [options] PATH... -- COMMAND [ARGUMENT...]"
    kind = run.add_mutually_exclusive_group()
    kind.add_argument("-s", "--shared", action="store_true", help="the read lock of a ReadWriteLock")
    kind.add_argument("-x", "--exclusive", action="store_true", help="the write lock of a ReadWriteLock")
    kind.add_argument("--permits", type=_count, metavar="N", help="one of N permits of a semaphore; all must say N")
    wait = run.add_mutually_exclusive_group()
    wait.add_argument("-n", "--nonblock", action="store_true", help="do not wait for the lock")
    wait.add_argument("-w", "--wait", "--timeout", type=_seconds, metavar="SEC", help="wait no longer than that")
    run.add_argument("-E", "--conflict-exit-code", type=_code, metavar="CODE", help="instead of 75")
    run.add_argument(
        "-o", "--close", action="store_true", help="release when the command ends, even if it leaves processes behind"
    )
    run.add_argument("--on-lost", choices=("term", "kill", "ignore"), default="term", help="end the command (term)")
    run.add_argument(
        "--kill-after", type=_seconds, default=5.0, metavar="SEC", help="from TERM to KILL: 5, at most timeout / 4"
    )
    run.add_argument(
        "--once-per",
        type=_seconds,
        metavar="SEC",
        help="skip if the last run, on any machine, was called less than that before",
    )
    run.add_argument("--until-success", action="store_true", help="with --once-per, only a run with exit code 0 counts")
    run.add_argument("--skip-code", type=_code, default=0, metavar="CODE", help="the exit code of a skip: 0")
    run.add_argument(
        "--status-fd", type=_count, metavar="FD", help="write a line of JSON there, which says how it ended"
    )
    # `flock` has this option. Here it is refused, and the error gives the reason.
    run.add_argument("-F", "--no-fork", action="store_true", help=argparse.SUPPRESS)
    run.add_argument("paths", nargs="+", metavar="PATH", help="what to lock; several are locked together")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. For `run`, `command` has the words after `--`.

    Raises:
        CommandError: the command line is wrong.
        SystemExit: the command line asks for help.
    """
    words = list(argv)
    command: list[str] = []
    if "--" in words and "run" in words[: (at := words.index("--"))]:
        words, command = words[:at], words[at + 1 :]
    found = parser().parse_args(words)
    if found.do == "run":
        found.command = command
        _check_run(found)
    elif getattr(found, "path", "/") != "/":
        _check_path(found.path)
    if found.do == "doctor" and found.scratch is not None:
        _check_path(found.scratch)
    return found


def _check_run(found: argparse.Namespace) -> None:
    if found.no_fork:
        _refuse("-F can't be: the hold needs a living process, so `run` stays beside the command")
    # As in `flock`, `-w 0` means `-n`.
    found.nonblock = found.nonblock or found.wait == 0
    if not found.command:
        _refuse("write `--` and the command behind the paths: zkconcurrent run PATH -- COMMAND")
    _check_paths(found.paths)
    if found.permits is not None and len(found.paths) > 1:
        _refuse("--permits takes one path")
    if found.once_per is not None and (found.shared or found.permits is not None):
        _refuse("--once-per needs a lock that one holds alone, so neither -s nor --permits")
    if found.until_success and found.once_per is None:
        _refuse("--until-success needs --once-per")
    if found.status_fd is not None:
        # Imported here: only POSIX has it, and elsewhere the command must still report that it needs POSIX.
        import fcntl

        try:
            os.set_inheritable(found.status_fd, False)
            writes = fcntl.fcntl(found.status_fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        except (OSError, OverflowError) as error:
            _refuse(f"--status-fd {found.status_fd}: {getattr(error, 'strerror', None) or 'too large'}")
        if not writes:
            _refuse(f"--status-fd {found.status_fd}: it is open for reading only")
        if found.status_fd < 3:
            _refuse("--status-fd must be 3 or more: the command has the others")


def _check_paths(paths: Sequence[str]) -> None:
    for path in paths:
        _check_path(path)
    if len(set(paths)) < len(paths):
        _refuse("a path is given twice")


def _check_path(path: str) -> None:
    """Refuse a mistyped path; the library refuses whatever else ZooKeeper does not accept."""
    if not path.startswith("/"):
        _refuse(f"path must start with '/': {path!r}")
    if {"", ".", ".."} & {*path[1:].split("/")}:
        _refuse(f"path must have no empty part, no '.' or '..', and no '/' at its end: {path!r}")


def server_url(found: argparse.Namespace) -> str:
    """Return the URL of the server.

    Raises:
        CommandError: no URL is given, or the URL is wrong; or the URL's file, or a file that the URL names, can't be
            read.
    """
    url: str = os.environ.get(URL, "") if found.url is None else found.url
    if found.url_file is not None:
        if found.url is not None:
            _refuse("--url and --url-file: give one of them")
        try:
            # Some editors begin a file with a byte order mark.
            with open(found.url_file) as file:
                url = file.read().partition("\n")[0].removeprefix("\ufeff")
        except (OSError, ValueError) as error:
            _refuse(f"--url-file: {getattr(error, 'strerror', None) or 'it is no text'}: {found.url_file}")
        if not url.strip():
            _refuse(f"--url-file: its first line is empty: {found.url_file}")
    # A URL from a file may end with a newline.
    url = url.strip()
    if not url:
        _refuse(f"no server: set ${URL}, or give --url-file or --url")
    try:
        settings = check_url(url)
    except ValueError as error:
        _refuse(str(error))
    if "memory" in settings:
        _refuse("memory: is a service of one process: no other could see the lock")
    if found.url is not None and settings.keys() & {"auth_data", "sasl_options"}:
        say(f"the password in --url shows in `ps`: use ${URL} or --url-file")
    return url


def _refuse(why: str) -> NoReturn:
    raise CommandError(Exit.USAGE, why)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError
    return min(value, _MOST_SECONDS)


def _interval(text: str) -> float:
    value = _seconds(text)
    if value < _SHORTEST_INTERVAL:
        raise ValueError
    return min(value, _LONGEST_INTERVAL)


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _code(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 255:
        raise ValueError
    return value


# argparse shows these names in its errors.
_seconds.__name__ = _interval.__name__ = "number of seconds"
_count.__name__, _code.__name__ = "number", "exit code"
