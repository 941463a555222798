"""Cells of a notebook use the locks of threads, though its kernel runs them in an event loop."""

from __future__ import annotations

import json

from tests.helpers.processes import run_python
from zkconcurrent.testing import Server

HOLD = """
async def hold():
    async with aio.Lock(zk, "/held"):
        held.set()
        await asyncio.sleep(100)
held = asyncio.Event()
task = asyncio.create_task(hold())
await held.wait()
"""


def test_cells(zookeeper: Server, zk_path: str) -> None:
    """A cell may wait, by itself or in a function; a lock that one cell holds, another may enter again and release.

    A coroutine or callback that waits is warned of, and a cell that would wait for a task of the loop is refused.
    """
    url = f"zk://{zookeeper.hosts}{zk_path}?timeout=20"
    cells = [
        f"import asyncio, zkconcurrent\nfrom zkconcurrent import aio\nzk = zkconcurrent.connect({url!r})",
        "lock = zkconcurrent.RLock(zk, '/lock')",
        "with lock:\n    print('in')",
        "def work():\n    with lock, zkconcurrent.Lock(zk, '/other').hold(20):\n        print('at work')\nwork()",
        "print(lock.acquire())",
        "print(lock.acquire(), lock.hold_count())",
        "lock.release(); lock.release(); print(lock.locked())",
        "print(zkconcurrent.Event(zk, '/event').wait(0.1))",
        "async def work():\n    with lock:\n        pass\nawait work()",
        "with lock:\n    await asyncio.sleep(0)",
        "asyncio.get_running_loop().call_soon(lambda: lock.acquire() and lock.release()); await asyncio.sleep(0.1)",
        HOLD,
        "zkconcurrent.Lock(zk, '/held').acquire()",
        "task.cancel(); print('cancelled')",
        "zk.stop()",
    ]
    done = run_python("tests/integration/notebook.py", timeout=240, input=json.dumps(cells))
    told = json.loads(done.stdout)
    assert told[:8] == ["", "", "in\n", "at work\n", "True\n", "True 2\n", "False\n", "False\n"]
    assert all("RuntimeWarning: this call waits in the thread of a running event loop" in each for each in told[8:11])
    assert told[12].startswith("RuntimeError Task-")
    assert "holds /held, and could never release it" in told[12]
    assert told[13:] == ["cancelled\n", ""]
