"""An isolated subinterpreter, where no client could work, is refused at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

HERE = """
import sys
sys.path[:] = {path!r}
import zkconcurrent
from kazoo.client import KazooClient
"""
REFUSED = """
try:
    {use}
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


def run(code: str) -> None:
    """Run some Python in an isolated subinterpreter of a process of its own."""
    code = HERE.format(path=sys.path) + code
    done = subprocess.run([sys.executable, "-c", RUN, code], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "use",
    [
        "zkconcurrent.Lock(KazooClient(), '/lock')",
        "zkconcurrent.Event(KazooClient(), '/event')",
        "zkconcurrent.namespace(KazooClient(), '/app')",
        "zkconcurrent.namespace('local')",
        "zkconcurrent.connect('zk://127.0.0.1:1', start_timeout=0.1)",
    ],
)
def test_an_isolated_subinterpreter(use: str) -> None:
    """To make anything there is a RuntimeError that says why."""
    run(REFUSED.format(use=use))
