"""A nightly job that every machine starts but only one must do.

    python examples/nightly_job.py HOSTS        # such as 127.0.0.1:2181

Four machines wake up at the same time. One of them does the job while the others wait; a fifth one wakes up late. The
machine that has done the job leaves a mark, so the others do not do it again. A machine that fails half way leaves no
mark, so the next in line does the job.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from pathlib import Path

from zkconcurrent import Client, Event, Lock, connect

MACHINES = 4
NIGHTS = ("monday", "tuesday", "wednesday")


def do_the_job(night: str, books: Path) -> None:
    """Close the books of a day; on Tuesday the first attempt fails."""
    tried = books / f"{night}.tried"
    if night == "tuesday" and not tried.exists():
        tried.touch()
        raise OSError("the disk is full")
    with (books / night).open("a") as file:
        file.write("closed\n")


def nightly(client: Client, path: str, night: str, books: Path) -> str:
    """Do the night's job unless it is done; return the outcome."""
    done = Event(client, f"{path}/{night}-done")
    with Lock(client, f"{path}/{night}-lock"):
        if done.is_set():
            return "found it done"
        try:
            do_the_job(night, books)
        except OSError:
            return "failed"
        done.set()  # outlives this process; the next holder sees it
        return "did it"


def machine(hosts: str, path: str, books: Path) -> list[str]:
    """Wake up every night; return the outcomes."""
    client = connect(f"zk://{hosts}")
    try:
        return [nightly(client, path, night, books) for night in NIGHTS]
    finally:
        client.stop()
        client.close()


def main(hosts: str, path: str = "/examples/nightly_job") -> None:
    """Run the machines and print the outcome."""
    with tempfile.TemporaryDirectory() as disk, multiprocessing.get_context("spawn").Pool(MACHINES) as pool:
        said = pool.starmap(machine, [(hosts, path, Path(disk))] * MACHINES)
        said.append(machine(hosts, path, Path(disk)))  # the late one
        for n, night in enumerate(NIGHTS):
            came_of_it = [each[n] for each in said]
            assert (Path(disk) / night).read_text() == "closed\n", f"{night}'s books were closed twice"
            assert came_of_it.count("did it") == 1
            assert came_of_it.count("failed") == (night == "tuesday")
            assert came_of_it[-1] == "found it done"
    client = connect(f"zk://{hosts}")
    for night in NIGHTS:  # a mark stays until it is destroyed
        Event(client, f"{path}/{night}-done").destroy()
    client.stop()
    client.close()
    print(f"{len(NIGHTS)} jobs, started by {MACHINES + 1} machines, were each done once")


if __name__ == "__main__":
    main(*sys.argv[1:])
