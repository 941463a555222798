"""Transfers between accounts; each account is a file and has a lock of its own.

    python examples/transfer.py HOSTS        # such as 127.0.0.1:2181

Four processes move money back and forth. A transfer holds the locks of both accounts as one `MultiLock`. It acquires
both or none, always in the same order, so a transfer from A to B and one from B to A never deadlock.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import tempfile
from pathlib import Path

from zkconcurrent import Client, Lock, MultiLock, connect

PROCESSES = 4
TRANSFERS = 40
ACCOUNTS = ("anna", "ben", "carla")
BALANCE = 100


def transfer(client: Client, path: str, bank: Path, source: str, target: str, amount: int) -> None:
    """Move an amount, if the source has that much."""
    with MultiLock(Lock(client, f"{path}/{name}") for name in (source, target)):
        there, here = int((bank / source).read_text()), int((bank / target).read_text())
        if there >= amount:
            (bank / source).write_text(str(there - amount))
            (bank / target).write_text(str(here + amount))


def work(hosts: str, path: str, bank: Path) -> None:
    """Make some transfers."""
    client = connect(f"zk://{hosts}")
    try:
        for _ in range(TRANSFERS):
            source, target = random.sample(ACCOUNTS, 2)
            transfer(client, path, bank, source, target, random.randint(1, BALANCE))
    finally:
        client.stop()
        client.close()


def main(hosts: str, path: str = "/examples/transfer") -> None:
    """Run the processes and print the outcome."""
    with tempfile.TemporaryDirectory() as disk, multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        bank = Path(disk)
        for name in ACCOUNTS:
            (bank / name).write_text(str(BALANCE))
        pool.starmap(work, [(hosts, path, bank)] * PROCESSES)
        balances = [int((bank / name).read_text()) for name in ACCOUNTS]
        assert min(balances) >= 0
        assert sum(balances) == BALANCE * len(ACCOUNTS), f"money was made or lost: {balances}"
        print(f"{PROCESSES * TRANSFERS} transfers, and the sum is still {sum(balances)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
