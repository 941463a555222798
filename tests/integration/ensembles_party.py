"""A process that uses several ensembles as one, until it is told to end.

    python -m tests.integration.ensembles_party FOLDER PATH HOSTS[,HOSTS] JOINING NAME...

It takes the locks of the names again and again, and under each checks what a lock promises: nobody else is inside, and
its fencing token is above all that have been there. It notes each cycle in the folder, in a file of its own.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zkconcurrent


@contextlib.contextmanager
def inside(folder: Path, name: str) -> Iterator[None]:
    """Be the only one in a place."""
    place = folder / f"{name.replace('/', '-')}.inside"
    # An error if it is there.
    os.close(os.open(place, os.O_CREAT | os.O_EXCL))
    yield
    place.unlink()


def fence(folder: Path, name: str, token: int) -> None:
    """Accept a token that is no lower than all before, as a resource does."""
    seen = folder / f"{name.replace('/', '-')}.token"
    last = int(seen.read_text()) if seen.exists() else 0
    assert token >= last, f"at {name} the token fell from {last} to {token}"
    seen.write_text(str(token))


def cycle(threads: Any, folder: Path, names: list[str]) -> None:
    """Take each lock once, and two together."""
    for name in names:
        lock = threads.RLock(name)
        with lock, inside(folder, name):
            fence(folder, name, lock.fencing_token)
    with threads.MultiLock(names[:2]), inside(folder, names[0]), inside(folder, names[1]):
        pass

    @zkconcurrent.synchronized(threads, "{name}")
    def call(name: str) -> None:
        with inside(folder, name):
            pass

    call(names[0].partition("/")[0] + "-call")
    pair = threads.ReadWriteLock(f"{names[0]}-pair")
    with pair.write_lock, inside(folder, f"{names[0]}-pair"):
        fence(folder, f"{names[0]}-pair", pair.write_lock.fencing_token)


def main(folder: Path, path: str, hosts: str, joining: str, *names: str) -> None:
    """Go through cycles until the folder has a file that tells this process to end."""
    old, new = (
        [zkconcurrent.connect(f"zk://{each}?timeout=10") for each in some.split(",") if each]
        for some in (hosts, joining)
    )
    random.shuffle(old)
    threads = zkconcurrent.namespace(old, path, joining=new)
    cycles, end = folder / f"{os.getpid()}.cycles", folder / f"{os.getpid()}.end"
    count = 0
    while not end.exists():
        cycle(threads, folder, list(names))
        count += 1
        cycles.write_text(str(count))
    for client in (*old, *new):
        client.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
