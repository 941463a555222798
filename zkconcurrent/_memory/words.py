"""The words of four letters that the project's tests and tools send to ZooKeeper, and the replies to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from .service import Service
from .wire import Connection

# ZooKeeper itself has no `drop`.
_WORDS = ("ruok", "envi", "conf", "srvr", "cons", "mntr", "wchs", "drop")
# The server behaves like ZooKeeper 3.8.0.
_VERSION = "3.8.0-memory, zkconcurrent's server for tests"


class Words:
    """Replies to the words.

    Args:
        service: the service.
        connections: the open connections, including the one that asks.
        settings: the settings in the server's `zoo.cfg`.
        drop: closes all connections that have a session.
    """

    def __init__(
        self,
        service: Service,
        connections: Collection[Connection],
        settings: Mapping[str, str],
        drop: Callable[[], None],
    ) -> None:
        self._service = service
        self._connections = connections
        self._settings = settings
        self._drop_all = drop
        self.received = 0  # frames of closed connections

    def answer(self, word: str) -> str | None:
        """Return the reply to a word; None if the word is not one of these."""
        return getattr(self, f"_{word}")() if word in _WORDS else None

    def _ruok(self) -> str:
        return "imok"

    def _envi(self) -> str:  # kazoo's `server_version` reads it
        return f"Environment:\nzookeeper.version={_VERSION}\n"

    def _drop(self) -> str:
        self._drop_all()
        return "dropped"

    def _conf(self) -> str:
        return _lines(f"{name}={value}" for name, value in self._settings.items())

    def _srvr(self) -> str:
        tree = self._service.tree
        figures = {
            "Zookeeper version": _VERSION,
            "Zxid": hex(tree.zxid),
            "Mode": "standalone",
            "Node count": len(tree.nodes),
        }
        return _lines(f"{name}: {value}" for name, value in figures.items())

    def _cons(self) -> str:
        clients = (
            f" /{each.address}[1](queued=0,recved={each.received}"
            + (f",sid={hex(each.session)},to={each.timeout}," if each.session else "")
            + ")"
            for each in self._connections
        )
        return _lines(clients) + "\n"

    def _mntr(self) -> str:
        tree, watches = self._service.tree, self._service.watches
        figures = {
            "version": _VERSION,
            "server_state": "standalone",
            "ephemerals_count": sum(len(session.paths) for session in tree.sessions.values()),
            "num_alive_connections": len(self._connections),
            "avg_latency": 0.0,
            "outstanding_requests": 0,
            "znode_count": len(tree.nodes),
            "global_sessions": len(tree.sessions),
            "packets_received": self.received + sum(each.received for each in self._connections),
            "watch_count": watches.data.size + watches.children.size,
            "open_file_descriptor_count": len(self._connections) + 3,
            "digest_mismatches_count": 0,
        }
        return _lines(f"zk_{name}\t{value}" for name, value in figures.items())

    def _wchs(self) -> str:
        data = self._service.watches.data
        watching = sum(map(bool, data.paths.values()))
        return f"{watching} connections watching {len(data.watchers)} paths\nTotal watches:{data.size}\n"


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
