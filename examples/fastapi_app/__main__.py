"""Requests to two processes of the application: no two requests of one user overlap, and no amount is lost.

    python examples/fastapi_app HOSTS        # such as 127.0.0.1:2181

Each process listens on a port of its own, as behind a load balancer. Sixteen threads send the requests of five users to
both in turn.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx

import zkconcurrent

PROCESSES, USERS, REQUESTS, THREADS = 2, 5, 200, 16
PATIENCE = 100.0


@contextmanager
def serving(url: str, accounts: str) -> Iterator[str]:
    """Run one process of the application; return its address once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", "app:app", "--app-dir", str(Path(__file__).parent), "--port", port]
    environment = {**os.environ, "ZK_URL": url, "ACCOUNTS": accounts}
    process = subprocess.Popen([*command, "--log-level", "warning"], env=environment)
    try:
        address, give_up = f"http://127.0.0.1:{port}", time.monotonic() + PATIENCE
        while True:
            try:
                httpx.get(f"{address}/openapi.json", trust_env=False).raise_for_status()
                break
            except httpx.ConnectError:
                assert process.poll() is None, "the server has ended"
                assert time.monotonic() < give_up, "the server does not answer"
                time.sleep(0.05)
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE)


def main(hosts: str, path: str = "/examples/fastapi_app") -> None:
    """Start the processes, send the requests, check the answers and print the outcome."""
    url = f"zk://{hosts}{path}"
    answers: defaultdict[int, list[dict[str, int]]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory() as accounts,
        zkconcurrent.connect(url) as zk,
        serving(url, accounts) as first,
        serving(url, accounts) as second,
        httpx.Client(timeout=PATIENCE, trust_env=False) as http,
        ThreadPoolExecutor(THREADS) as threads,
    ):

        def add(number: int, address: str) -> None:
            user = number % USERS
            response = http.post(f"{address}/users/{user}/add", params={"amount": 1})
            assert response.status_code == 200, response.text  # an overlap is a 500
            answers[user].append(response.json())

        list(threads.map(add, range(REQUESTS), itertools.cycle([first, second])))

        for user in range(USERS):
            in_order = sorted(answers[user], key=lambda answer: answer["token"])
            balances = [answer["balance"] for answer in in_order]
            assert balances == list(range(1, REQUESTS // USERS + 1)), balances  # each request saw the one before it
            assert (Path(accounts) / str(user)).read_text() == str(REQUESTS // USERS)
            assert len({answer["process"] for answer in in_order}) == PROCESSES
            lock = zkconcurrent.Lock(zk, f"/users/{user}")
            assert lock.owner() is None
            assert not lock.waiters()
    print(f"{REQUESTS} requests to {PROCESSES} processes: no two of one user overlapped, and nothing was lost")


if __name__ == "__main__":
    main(*sys.argv[1:])
