"""The stacks of other threads are read while these run: by the first use of a client, and by `inspect()`."""

from __future__ import annotations

import gc
import os
import signal
import threading
from pathlib import Path

import pytest

from tests.conftest import InThread
from tests.helpers.processes import run_python
from zkconcurrent._runtime.stacks import read_stacks
from zkconcurrent.testing import Server

ROOT = Path(__file__).parents[2]

PROGRAM = """
import gc
import sys
import threading

import zkconcurrent
from kazoo.client import KazooClient

hosts, path = sys.argv[1:]
zk = KazooClient(hosts)
zk.start()
found, noting, inside, over = {}, threading.local(), threading.Event(), threading.Event()

def is_own(frame):
    own = sys._getframe()
    while own not in (None, frame):
        own = own.f_back
    return own is frame

def note(event, args):
    # CPython tells an audit hook of each read of a frame's code. A thread may always read its own.
    if event != "object.__getattr__" or args[1] != "f_code" or is_own(args[0]):
        return
    if not getattr(noting, "now", False):
        noting.now = True
        found.setdefault(args[0].f_code.co_name, set()).add(gc.isenabled())
        noting.now = False

def stay():
    with zkconcurrent.Lock(zk, path):
        inside.set()
        over.wait()

sys.addaudithook(note)
thread = threading.Thread(target=stay)
thread.start()
inside.wait()
assert "stay" in str(zkconcurrent.inspect())
over.set()
thread.join()
zk.stop()
print(found.get("_connect_attempt"), found["stay"], gc.isenabled())
"""


@pytest.mark.fault(351)
def test_no_garbage_is_collected_meanwhile(zookeeper: Server, zk_path: str) -> None:
    """No finalizer lets the threads go on whose stacks `inspect()` reads; the first lock reads none."""
    ended = run_python("-c", PROGRAM, zookeeper.hosts, zk_path)
    assert ended.stdout == "None {False} True\n"


@pytest.mark.fault(351)
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


@pytest.mark.fault(351)
def test_several_readers(in_thread: InThread) -> None:
    """The first that ends has no garbage collected while another one reads."""
    reads, ends = threading.Event(), threading.Event()

    def read() -> bool:
        with read_stacks():
            reads.set()
            ends.wait(20)
            return gc.isenabled()

    first = in_thread(read)
    assert reads.wait(20)
    second = in_thread(read)
    ends.set()
    assert not first.result(20)
    assert not second.result(20)
    assert gc.isenabled()


@pytest.mark.fault(351)
def test_a_forked_child(in_thread: InThread) -> None:
    """A child that is forked while another thread reads can read, and collects garbage."""
    reads, ends = threading.Event(), threading.Event()

    def read() -> None:
        with read_stacks():
            reads.set()
            ends.wait(0.2)  # the fork waits for its end

    reading = in_thread(read)
    assert reads.wait(20)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        with read_stacks():
            pass
        os._exit(0 if gc.isenabled() else 1)
    ends.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    reading.result(20)
