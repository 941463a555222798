"""The stacks of other threads are read while these run: by `inspect()`."""

from __future__ import annotations

import gc
import signal

import pytest

from tests.helpers.processes import run_python
from zkconcurrent._runtime.stacks import read_stacks

pytestmark = pytest.mark.fault(351)

PROGRAM = """
import gc, sys
import zkconcurrent
enabled = set()
sys.addaudithook(lambda event, _: event == "sys._current_frames" and enabled.add(gc.isenabled()))
with zkconcurrent.connect("memory:") as zk, zkconcurrent.Lock(zk, "/lock"):
    zkconcurrent.inspect()
print(enabled, gc.isenabled())
"""


def test_no_garbage_is_collected_meanwhile() -> None:
    """No finalizer lets the threads go on whose stacks `inspect()` reads."""
    assert run_python("-c", PROGRAM).stdout == "{False} True\n"


@pytest.mark.parametrize("collects", [True, False])
def test_afterwards(collects: bool) -> None:
    """Garbage is collected as before, also after a reader in a reader, and one that was interrupted."""
    (gc.enable if collects else gc.disable)()
    try:
        with read_stacks():
            with read_stacks():
                pass
            assert not gc.isenabled()
        assert gc.isenabled() is collects
        with pytest.raises(KeyboardInterrupt), read_stacks():
            signal.raise_signal(signal.SIGINT)
        assert gc.isenabled() is collects
    finally:
        gc.enable()
