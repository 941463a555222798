"""ZooKeeper servers for tests, on loopback: from the installation on this machine, or in memory without one.

    with Server() as server:
        zk = zkconcurrent.connect(f"zk://{server.hosts}")

The command `python -m zkconcurrent.testing` runs a server, and `pytest_zkconcurrent` has fixtures for pytest.
"""

from ._ensemble import Ensemble, Peer
from ._errors import NoServerError
from ._installation import Installation, find_installation
from ._interleave import interleave, pause
from ._memory import MemoryServer, any_server
from ._server import Server

__all__ = [
    "Ensemble",
    "Installation",
    "MemoryServer",
    "NoServerError",
    "Peer",
    "Server",
    "any_server",
    "find_installation",
    "interleave",
    "pause",
]
