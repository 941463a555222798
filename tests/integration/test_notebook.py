"""Cells of a notebook use the locks of threads, though its kernel runs them in an event loop."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.processes import run_python
from zkconcurrent.testing import Server

ROOT = Path(__file__).parents[2]


def run(zookeeper: Server, path: str, *cells: str) -> list[str]:
    """Return what each cell prints; the first one opens a client and makes a lock."""
    first = f"""
import asyncio, zkconcurrent
from zkconcurrent import aio
zk = zkconcurrent.connect("zk://{zookeeper.hosts}{path}?timeout=20")
lock = zkconcurrent.RLock(zk, "/lock")
"""
    said = json.dumps([first, *cells, "zk.stop()"])
    done = run_python("tests/integration/notebook.py", timeout=240, input=said)
    [opened, *told, stopped] = json.loads(done.stdout)
    assert opened == stopped == ""
    return told


def test_cells(zookeeper: Server, zk_path: str) -> None:
    """A cell may wait, by itself or in a function; a lock that one cell holds, another may enter again and release."""
    told = run(
        zookeeper,
        zk_path,
        "with lock:\n    print('in')",
        "def work():\n    with lock, zkconcurrent.Lock(zk, '/other').hold(20):\n        print('at work')\nwork()",
        "print(lock.acquire())",
        "print(lock.acquire(), lock.hold_count())",
        "lock.release(); lock.release(); print(lock.locked())",
        "print(zkconcurrent.Event(zk, '/event').wait(0.1))",
    )
    assert told == ["in\n", "at work\n", "True\n", "True 2\n", "False\n", "False\n"]


def test_coroutines_in_cells(zookeeper: Server, zk_path: str) -> None:
    """A coroutine or callback that waits is warned of, and a cell that would wait for a task of the loop is refused."""
    hold = """
async def hold():
    async with aio.Lock(zk, "/held"):
        held.set()
        await asyncio.sleep(100)
held = asyncio.Event()
task = asyncio.create_task(hold())
await held.wait()
"""
    *warned, _, refused, ended = run(
        zookeeper,
        zk_path,
        "async def work():\n    with lock:\n        pass\nawait work()",
        "with lock:\n    await asyncio.sleep(0)",
        "asyncio.get_running_loop().call_soon(lambda: lock.acquire() and lock.release()); await asyncio.sleep(0.1)",
        hold,
        "zkconcurrent.Lock(zk, '/held').acquire()",
        "task.cancel(); print('cancelled')",
    )
    assert all("RuntimeWarning: this call waits in the thread of a running event loop" in each for each in warned)
    assert refused.startswith("RuntimeError Task-")
    assert "holds /held, and could never release it" in refused
    assert ended == "cancelled\n"
