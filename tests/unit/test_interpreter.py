"""Where no client could work, each is refused at once: an isolated subinterpreter; greenlets that come too late."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers.processes import run_python

IN_A_SUBINTERPRETER = """
import sys
sys.path[:] = {path!r}
import zkconcurrent
from kazoo.client import KazooClient
uses = [
    lambda: zkconcurrent.Lock(KazooClient(), "/lock"),
    lambda: zkconcurrent.namespace(KazooClient(), "/app"),
    lambda: zkconcurrent.namespace("local"),
    lambda: zkconcurrent.connect("zk://127.0.0.1:1", start_timeout=0.1),
]
for use in uses:
    try:
        use()
    except RuntimeError as error:
        assert "isolated subinterpreter" in str(error), error
    else:
        raise AssertionError("it was not refused")
"""
RUN = """
import sys
if sys.version_info >= (3, 13):
    import _interpreters as interpreters
    failed = interpreters.exec(interpreters.create("isolated"), sys.argv[1])
    sys.exit(failed and str(failed))
import _xxsubinterpreters as interpreters
interpreters.run_string(interpreters.create(isolated=True), sys.argv[1])
"""


@pytest.mark.fault(72)
def test_an_isolated_subinterpreter() -> None:
    """To make anything there is a RuntimeError that says why."""
    command = [sys.executable, "-c", RUN, IN_A_SUBINTERPRETER.format(path=sys.path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


PATCH = "from gevent import monkey; monkey.patch_all()"
OF_GEVENT = "from kazoo.handlers.gevent import SequentialGeventHandler as Handler"
# eventlet puts its own function there.
PATCH_BY_EVENTLET = """
import threading
def get_ident(own=threading.get_ident): return own()
get_ident.__module__ = "eventlet.green.thread"
threading.get_ident = get_ident
"""


@pytest.mark.fault(244)
@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("", PATCH, "gevent must patch the program before zkconcurrent is imported: begin the program with"),
        ("", OF_GEVENT, "gevent must patch"),
        (PATCH_BY_EVENTLET, "", "zkconcurrent does not work on eventlet: use gevent, or threads"),
    ],
    ids=["patched late", "handler of gevent", "eventlet"],
)
def test_greenlets_that_come_too_late(before: str, after: str, says: str) -> None:
    """Where the threads that the library knows are not the program's, each first use says what to do."""
    program = f"""
{before}
import zkconcurrent
from kazoo.client import KazooClient
{after}
options = {{"handler": Handler()}} if "Handler" in globals() else {{}}
uses = [
    lambda: zkconcurrent.Lock(KazooClient(**options), "/lock"),
    lambda: zkconcurrent.connect("memory:", **options),
]
for use in uses:
    try:
        use()
    except RuntimeError as error:
        assert {says!r} in str(error), error
    else:
        raise AssertionError("it was not refused")
"""
    run_python("-W", "ignore", "-c", program)
