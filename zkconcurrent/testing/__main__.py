"""Run a ZooKeeper in the foreground: `python -m zkconcurrent.testing`.

The command prints the addresses for clients, in one line, once the service accepts clients. Ctrl-C or SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time

from . import Ensemble, Server

_POLL_INTERVAL = 0.5


def main() -> str | None:
    """Run the service until a signal ends it.

    Returns:
        An error message, or None.
    """
    parser = argparse.ArgumentParser(
        prog="python -m zkconcurrent.testing",
        description="Run a ZooKeeper for tests on loopback until Ctrl-C, and print its hosts.",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--port", type=int, help="where clients connect (default: any free port)")
    kind.add_argument("--ensemble", action="store_true", help="run three servers instead of one")
    arguments = parser.parse_args()

    # Ctrl-C too, as a script that starts this in the background makes it ignore SIGINT.
    for told_to_end in (signal.SIGINT, signal.SIGTERM):
        signal.signal(told_to_end, signal.default_int_handler)
    try:
        with Ensemble() if arguments.ensemble else Server(port=arguments.port) as service:
            print(service.hosts, flush=True)  # noqa: T201
            servers = service.servers if isinstance(service, Ensemble) else (service,)
            while all(server.is_running for server in servers):
                time.sleep(_POLL_INTERVAL)
            return "A server ended by itself. Its log:\n" + "\n".join(server.log for server in servers)
    except RuntimeError as error:
        return str(error)
    except KeyboardInterrupt:
        return None


if __name__ == "__main__":
    sys.exit(main())
