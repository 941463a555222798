"""Run a ZooKeeper in the foreground: `python -m zkconcurrent.testing`.

With `--memory`, or if no ZooKeeper or no Java is installed, the command runs the memory server.

Once the service accepts clients, the command prints the line of Python that connects to it. Ctrl-C or SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence

from . import Ensemble, MemoryServer, Server, any_server
from ._ports import PortTakenError

PORTS = range(2181, 2201)  # ZooKeeper's default and up
MEMORY_ONLY = "This server is for tests and development: its data is in memory, and it listens on 127.0.0.1 only."
_POLL_INTERVAL = 0.5


def start_at_first_free(ports: Sequence[int], kind: type[Server] = Server) -> Server:
    """Start a server on the first of these ports that is not in use; if it is not the first, say so on standard error.

    Raises:
        RuntimeError: all are in use, or the server does not start.
        ValueError: there is no such port.
    """
    for port in ports:
        server = kind(port=port)
        try:
            server.start()
        except PortTakenError:
            if port == ports[-1]:
                raise
            continue
        if port != ports[0]:
            print(f"Port {ports[0]} is in use, so this server has port {port}.", file=sys.stderr, flush=True)  # noqa: T201
        break
    return server


def main() -> str | None:
    """Run the service until a signal ends it.

    Returns:
        An error message, or None.
    """
    parser = argparse.ArgumentParser(
        prog="python -m zkconcurrent.testing",
        description="Run a ZooKeeper for tests on loopback until Ctrl-C, and print the line that connects to it.",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--port", type=int, help=f"where clients connect (default: {PORTS[0]} or, if it is in use, the next free one)"
    )
    kind.add_argument("--ensemble", action="store_true", help="run three servers instead of one, on any free ports")
    parser.add_argument(
        "--memory",
        action="store_true",
        help="run the server that needs no ZooKeeper and no Java, also where these are installed; for tests and "
        "development, on 127.0.0.1 only",
    )
    arguments = parser.parse_args()
    if arguments.memory and arguments.ensemble:
        parser.error("--memory runs one server")

    # SIGINT, too: a script that starts this in the background makes it ignore Ctrl-C.
    for told_to_end in (signal.SIGINT, signal.SIGTERM):
        signal.signal(told_to_end, signal.default_int_handler)
    service: Server | Ensemble = Ensemble()
    try:
        if arguments.ensemble:
            service.start()
        else:
            ports = PORTS if arguments.port is None else [arguments.port]
            kind_of_server = MemoryServer if arguments.memory else type(any_server())
            service = start_at_first_free(ports, kind_of_server)
        if isinstance(service, MemoryServer):
            print(MEMORY_ONLY, file=sys.stderr, flush=True)  # noqa: T201
        print(f'zk = zkconcurrent.connect("zk://{service.hosts}")', flush=True)  # noqa: T201
        servers = service.servers if isinstance(service, Ensemble) else (service,)
        while all(server.is_running for server in servers):
            time.sleep(_POLL_INTERVAL)
        return "A server ended by itself. Its log:\n" + "\n".join(server.log for server in servers)
    except (RuntimeError, ValueError) as error:
        return str(error)
    except KeyboardInterrupt:
        return None
    finally:
        service.stop()


if __name__ == "__main__":
    sys.exit(main())
