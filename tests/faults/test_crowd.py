"""More threads than kazoo's pipe has room for, on one client."""

from __future__ import annotations

from kazoo.client import KazooClient

from tests.conftest import InThread
from zkconcurrent import Lock

THREADS = 400  # each with two requests under way, where the pipe holds 278


def test_hundreds_of_threads_on_one_client(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Fault 26: however many requests are under way at once, nobody waits for kazoo with what kazoo waits for."""

    def work(number: int) -> int:
        lock = Lock(zk, f"{zk_path}/{number}")
        for _ in range(3):
            with lock:
                pass
        return number

    futures = [in_thread(work, number) for number in range(THREADS)]
    assert [future.result(60) for future in futures] == list(range(THREADS))
    assert sum(len(zk.get_children(f"{zk_path}/{number}")) for number in range(THREADS)) == 0
