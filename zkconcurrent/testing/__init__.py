"""Real ZooKeeper servers for tests: started in a second, on loopback, from whatever installation there is.

    with Server() as server:
        client = KazooClient(server.hosts)

Also a command, ``python -m zkconcurrent.testing``, and pytest fixtures (see `zkconcurrent.testing.plugin`).
"""

from zkconcurrent.testing._ensemble import Ensemble, Peer
from zkconcurrent.testing._errors import NoServerError
from zkconcurrent.testing._installation import Installation, find_installation
from zkconcurrent.testing._server import Server

__all__ = ["Ensemble", "Installation", "NoServerError", "Peer", "Server", "find_installation"]
