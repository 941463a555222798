"""The memory server: a ZooKeeper in Python, for tests and development without a real one."""

from __future__ import annotations

import os
from pathlib import Path

from ._errors import NoServerError
from ._installation import MEMORY, find_installation
from ._java import find_java
from ._server import Server


class MemoryServer(Server):
    """A server that keeps its data in memory, on loopback; a context manager that starts and stops it.

    It starts in a tenth of a second, needs no Java, and speaks ZooKeeper's protocol, so that any client may use it from
    any process of this machine. Contract tests compare it with a real server. It is **not for production**: it is
    neither replicated nor durable, and listens on 127.0.0.1 only. It has no TLS, SASL, quotas or nodes with a time to
    live, and does not know `reconfig`, `whoami`, `getEphemerals`, `getAllChildrenNumber` and checks of watches.

    Like a `Server`, it runs in a process of its own, which can be killed and frozen, and which has its data again after
    a restart. `stop`, or the end of this Python process, ends it and leaves nothing behind.

    Args:
        port: the port for clients; by default the first start chooses a free one, and later starts keep it.
        tick_time: the server's unit of time, in seconds. Sessions expire at a multiple of it.
        min_session_timeout: the shortest session timeout a client can get, in seconds; by default two ticks.
        max_session_timeout: the longest session timeout a client can get, in seconds.
        container_check_interval: how often empty containers are removed, in seconds.

    Raises:
        TypeError: the port is not an int, or a time is not a number of seconds.
        ValueError: there is no such port.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        tick_time: float = 0.2,
        min_session_timeout: float | None = None,
        max_session_timeout: float = 60.0,
        container_check_interval: float = 60.0,
    ) -> None:
        super().__init__(
            port=port,
            tick_time=tick_time,
            min_session_timeout=min_session_timeout,
            max_session_timeout=max_session_timeout,
            container_check_interval=container_check_interval,
            installation=MEMORY,
        )
        self._forgets = False

    def restart(self, *, sessions: bool = True) -> None:
        """Kill the server, and start it again on the same port with the same data.

        Args:
            sessions: whether the sessions live on. If not, all sessions end, and their ephemeral nodes are removed.
        """
        self.kill()
        self._forgets = not sessions
        try:
            self.start()
        finally:
            self._forgets = False

    def drop_connections(self) -> None:
        """Close the connections of all clients; their sessions live on, and the clients come back at once.

        Raises:
            OSError: the server is not running, or does not reply in time.
        """
        self.command("drop")

    def _command(self, config: Path) -> list[str]:
        return [*super()._command(config), *["forget"] * self._forgets]


def any_server() -> Server:
    """Return a server to start: a real ZooKeeper, or a `MemoryServer` where ZooKeeper or Java is missing.

    Raises:
        NoServerError: ZKCONCURRENT_SERVER, ZOOKEEPER_HOME or JAVA_HOME names a server or a Java that is missing.
    """
    named = ["ZKCONCURRENT_SERVER", "ZOOKEEPER_HOME"]
    try:
        installation = find_installation()
        if installation is not MEMORY:
            named = ["JAVA_HOME"]
            find_java()
            return Server(installation=installation)
    except NoServerError:
        if any(os.environ.get(each) for each in named):
            raise
    return MemoryServer()
