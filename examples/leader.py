"""Services elect a leader; the parent kills it, and clients find the next one.

    python examples/leader.py HOSTS        # such as 127.0.0.1:2181

Each service stands in an `Election`. The one that leads publishes its address, and writes ticks into a shared log, each
with its fencing token, until it is told to stop. The parent observes who leads, kills the first leader, and sees the
next one take over. No tick of an older leader follows one of a newer.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from zkconcurrent import Candidate, Election, Event, LockLostError, connect

SERVICES = 3
SESSION = 4.0  # seconds until the killed leader's session is over; 20 to 30 in production
TICK = 0.05


def service(hosts: str, path: str, log: Path, number: int) -> None:
    """Stand until the parent says that it is enough, and work while it leads."""
    client = connect(f"zk://{hosts}", timeout=SESSION)
    enough = Event(client, f"{path}/enough")
    election = Election(client, f"{path}/leader", id=f"service {number}")
    election.stand()
    while not enough.is_set():
        term = election.wait(1.0)
        if term is None:
            continue  # another one leads
        with suppress(LockLostError):  # then another one may lead: stand on
            term.publish(f"10.0.0.{number}:8080".encode())
            while not term.lost.wait(TICK) and not enough.is_set():
                with log.open("a") as lines:
                    lines.write(f"{term.fencing_token}\n")
    election.withdraw()
    client.stop()
    client.close()


def main(hosts: str, path: str = "/examples/leader") -> None:
    """Start the services, kill the leader, and print how the next one took over."""
    client = connect(f"zk://{hosts}")
    enough = Event(client, f"{path}/enough")
    observer = Election(client, f"{path}/leader")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        services = [context.Process(target=service, args=(hosts, path, log, n)) for n in range(SERVICES)]
        for each in services:
            each.start()
        leaders: list[Candidate] = []
        for leader in observer.observe():
            if leader is None or not leader.id.startswith("10.0.0."):
                continue  # nobody leads yet, or the new leader has not published its address yet
            print(f"{leader.id} leads, with token {leader.token}")
            leaders.append(leader)
            if len(leaders) == 2:
                break
            services[int(leader.id[len("10.0.0.") : -len(":8080")])].kill()
        enough.set()
        for each in services:
            each.join(30)
        tokens = [int(line) for line in log.read_text().splitlines()] if log.exists() else []
    assert tokens == sorted(tokens), "an older leader wrote after a newer one"
    assert leaders[0].token < leaders[1].token
    assert observer.leader() is None, "a service did not withdraw"
    enough.destroy()
    client.stop()
    client.close()
    print("the leader was killed, another one leads, and no write came out of order")


if __name__ == "__main__":
    main(*sys.argv[1:])
