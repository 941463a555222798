"""One real ZooKeeper server, in its own process and folder."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from .._arguments.limits import check_int, check_seconds
from .._runtime.clock import monotonic
from .._runtime.public import Self
from ._installation import MEMORY, Installation, find_installation
from ._java import find_java, java_version
from ._ports import PortTakenError, ReservedPorts, in_use, try_ports
from ._process_guard import ProcessGuard
from ._service import Service

# Small and quick to start, rather than fast in the long run. Every Java from 8 on accepts these.
_JVM_OPTIONS = ("-Xmx256m", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

# As few threads as possible: half of a request's cost is passing it between threads. So a server reads its
# connections, and commits the requests of an ensemble, one after another; the replies stay the same.
_FEW_THREADS = {
    "zookeeper.nio.numSelectorThreads": 1,
    "zookeeper.nio.numWorkerThreads": 0,
    "zookeeper.commitProcessor.numWorkerThreads": 0,
}

# With these, any logging library writes warnings and worse to standard error. They are passed as properties, as Java
# starts more slowly with a folder on the class path.
_CONF = Path(__file__).parent / "conf"
_LOGGING = {
    "log4j.configuration": (_CONF / "log4j.properties").as_uri(),
    "log4j2.configurationFile": (_CONF / "log4j2.properties").as_uri(),
    "logback.configurationFile": (_CONF / "logback.xml").as_uri(),
    "org.slf4j.simpleLogger.defaultLogLevel": "warn",
    "org.slf4j.simpleLogger.showDateTime": "true",
    "org.slf4j.simpleLogger.dateTimeFormat": "HH:mm:ss.SSS",
}

_LOG = "log"
_TAKEN = "Address already in use"
_CONTAINERS = "znode.container.checkIntervalMs"

_PACKAGE = Path(__file__).parents[1]
# Importing the package itself would load the library and kazoo. So an empty package with the same modules replaces it.
_MEMORY = """
import sys, types
sys.modules["zkconcurrent"] = package = types.ModuleType("zkconcurrent")
package.__path__ = [sys.argv[1]]
from zkconcurrent._memory.tcp import main
main(*sys.argv[2:])
"""

_START_TIMEOUT = 60.0
_POLL_INTERVAL = 0.02


class Server(Service):
    """A ZooKeeper server on loopback, for tests; a context manager that starts and stops it.

    It runs in a temporary folder and leaves nothing behind: `stop`, or the end of this Python process, even by SIGKILL,
    ends the server and removes the folder. It needs a POSIX system.

    Args:
        port: the port for clients; by default the first start chooses a free one, and later starts keep it.
        tick_time: the server's unit of time, in seconds. Sessions expire at a multiple of it.
        min_session_timeout: the shortest session timeout a client can get, in seconds; by default two ticks.
        max_session_timeout: the longest session timeout a client can get, in seconds.
        force_sync: write every change through to the disk, as in production; matters only when the power fails.
        container_check_interval: how often empty containers are removed, in seconds.
        settings: more lines for the server's `zoo.cfg`, by name.
        properties: more system properties of Java, by name.
        server_id: the server's number, if the settings make it part of an ensemble.
        installation: the ZooKeeper to run; by default the one that `find_installation` finds.

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
        force_sync: bool = False,
        container_check_interval: float = 60.0,
        settings: Mapping[str, object] | None = None,
        properties: Mapping[str, object] | None = None,
        server_id: int | None = None,
        installation: Installation | None = None,
    ) -> None:
        if port is not None and not 0 < check_int("port", port) < 65536:
            raise ValueError(f"a port is a number from 1 to 65535, not {port}")
        self._fixed_port = port
        self._port = port
        # The port is reserved from a start that chooses it until `stop`.
        self._reserved: ReservedPorts | None = None
        self._server_id = server_id
        self._installation = installation
        self._java = Path("java")  # replaced at the start
        check_seconds("tick_time", tick_time)
        if min_session_timeout is None:
            min_session_timeout = 2 * tick_time
        self._special = (*(settings or {}), *(properties or {}))
        self._settings = {
            "tickTime": _milliseconds("tick_time", tick_time),
            "minSessionTimeout": _milliseconds("min_session_timeout", min_session_timeout),
            "maxSessionTimeout": _milliseconds("max_session_timeout", max_session_timeout),
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            **(settings or {}),
        }
        self._properties = {
            **_FEW_THREADS,
            "zookeeper.forceSync": "yes" if force_sync else "no",
            _CONTAINERS: _milliseconds("container_check_interval", container_check_interval),
            **(properties or {}),
        }
        # Invariant: the guard, with the server's folder, exists from the first start until stop; `_process` is set from
        # each start until kill (it may have ended by itself, unnoticed).
        self._guard: ProcessGuard | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_frozen = False

    def __repr__(self) -> str:
        state = f"pid {self._process.pid}" if self._process else "not running"
        return f"<{type(self).__name__} 127.0.0.1:{self._port or '?'}, {state}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port for clients; it stays the same from the first start on.

        Raises:
            RuntimeError: the server was never started, and no port was given.
        """
        if self._port is None:
            raise RuntimeError("the server has no port before it is started")
        return self._port

    @property
    def hosts(self) -> str:
        """The address to give to clients, such as `"127.0.0.1:21810"`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The pid of the server's process.

        Raises:
            RuntimeError: the server is not running.
        """
        return self._running_process().pid

    @property
    def kind(self) -> str:
        """The kind of server: `"memory"`, or an installed ZooKeeper's kind and version, such as `"debian 3.8.0"`.

        Raises:
            NoServerError: there is no ZooKeeper.
        """
        found = self._installation or find_installation()
        return found.kind if found is MEMORY else f"{found.kind} {found.version}"

    @property
    def is_running(self) -> bool:
        """Whether the process exists; it may be frozen, or not serve yet."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """The server's output since its last start; empty after `stop`."""
        if self._guard is None:
            return ""
        try:
            return (self._guard.folder / _LOG).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def start(self, *, wait: bool = True) -> None:
        """Start the server: with no data or, after a kill, with the data that it had.

        Args:
            wait: whether to return only when the server serves clients; if not, call `wait` yourself.

        Raises:
            NoServerError: there is no ZooKeeper, or no Java.
            RuntimeError: the server is running already; the port that was asked for is in use; or the server does not
                start (the message then ends with its log).
        """
        if self.is_running:
            raise RuntimeError(f"{self!r} is running already")
        self._installation = self._installation or find_installation()
        if self._installation.kind != MEMORY.kind:
            self._java = find_java()
        elif self._special:
            raise RuntimeError(f"the memory server has no setting {self._special[0]!r}: use a real ZooKeeper")
        if self._guard is not None:
            self._launch(self._guard, wait)
        elif self._fixed_port is not None:
            self._start_afresh(wait)
        else:
            try_ports(lambda: self._start_afresh(wait))

    def wait(self, timeout: float = _START_TIMEOUT) -> None:
        """Wait until the server serves clients.

        Args:
            timeout: how long to wait, in seconds.

        Raises:
            RuntimeError: the server ended, or does not serve in time; the message ends with its log. Or the settings do
                not allow the four-letter command `conf`.
        """
        began = monotonic()
        waited = 0.0
        # A server that is still starting may never reply to a request, so the first requests wait only briefly.
        while not self._serves(patience=max(0.1, waited / 2)):
            waited = monotonic() - began
            if not self.is_running:
                self._fail("ended instead of serving")
            if waited > timeout:
                self._fail(f"did not serve within {timeout:g} s")
            time.sleep(_POLL_INTERVAL)

    def stop(self) -> None:
        """End the process and remove the folder; a later start begins with no data."""
        self.kill()
        guard, self._guard = self._guard, None
        if guard is not None and guard.is_ours:
            guard.close()
        if self._reserved is not None:
            self._reserved.close()
        atexit.unregister(self.stop)

    def kill(self) -> None:
        """Kill the server (SIGKILL), as in a crash; the data stays for the next start."""
        process, self._process = self._process, None
        if process is not None and self._guard is not None and self._guard.is_ours:
            self._guard.kill(process)

    def restart(self) -> None:
        """Kill the server, and start it again on the same port with the same data."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Stop the server's process (SIGSTOP): connections stay open, and no request gets a reply."""
        if not self._is_frozen:
            os.kill(self.pid, signal.SIGSTOP)
            os.waitpid(self.pid, os.WUNTRACED)
            self._is_frozen = True

    def thaw(self) -> None:
        """Continue the server's process after `freeze` (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)
        self._is_frozen = False

    def command(self, word: str, timeout: float = 5.0) -> str:
        """Send one of ZooKeeper's four-letter commands, such as `srvr`, `cons` or `wchs`; return the reply.

        Args:
            word: the command; the server allows all of them.
            timeout: seconds to wait for the connection and for each part of the reply.

        Raises:
            OSError: the server is not running, or does not reply in time.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout) as connection:
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")

    def mntr(self) -> dict[str, str]:
        """Return the server's metrics, such as `zk_packets_received`; empty while it does not serve."""
        lines = (line.partition("\t") for line in self._asked("mntr", 5.0).splitlines())
        return {name: value for name, tab, value in lines if tab}

    def status(self, timeout: float = 1.0) -> dict[str, str]:
        """Return the reply to `srvr`, such as `Mode` and `Zxid`; empty while it does not serve or reply in time."""
        try:
            lines = (line.partition(": ") for line in self._asked("srvr", timeout).splitlines())
            return {name: value for name, colon, value in lines if colon}
        except OSError:
            return {}

    def mode(self) -> str | None:
        """Return `standalone`, `leader` or `follower`; None while it does not serve or reply in time."""
        return self.status().get("Mode")

    def _asked(self, word: str, timeout: float) -> str:
        """Return the reply to a four-letter command that this class itself uses."""
        reply = self.command(word, timeout)
        if "not in the whitelist" in reply:
            raise RuntimeError(f"{self!r} needs the command {word}: add it to 4lw.commands.whitelist")
        return reply

    def _start_afresh(self, wait: bool) -> None:
        if self._fixed_port is None:
            self._reserved = ReservedPorts(1)
            (self._port,) = self._reserved.numbers
        elif in_use(self._fixed_port):
            raise self._port_taken()
        try:
            self._guard = ProcessGuard()
            atexit.register(self.stop)
            self._launch(self._guard, wait)
        except BaseException:
            self.stop()
            raise

    def _launch(self, guard: ProcessGuard, wait: bool) -> None:
        settings = {
            **self._settings,
            "dataDir": guard.folder,
            "clientPortAddress": "127.0.0.1",
            "clientPort": self.port,
        }
        config = guard.folder / "zoo.cfg"
        config.write_text(_for_java("".join(f"{name}={value}\n" for name, value in settings.items())))
        if self._server_id is not None:
            (guard.folder / "myid").write_text(f"{self._server_id}\n")
        with open(guard.folder / _LOG, "wb") as log:
            self._process = guard.start(self._command(config), log)
        self._is_frozen = False
        if wait:
            self.wait()

    def _command(self, config: Path) -> list[str]:
        """Return the command that runs the server."""
        assert self._installation is not None
        if self._installation.kind == MEMORY.kind:
            # Without the user's packages: finding them would take longer than starting the server.
            return [
                sys.executable,
                "-ISc",
                _MEMORY,
                str(_PACKAGE),
                str(config),
                str(self._properties[_CONTAINERS]),
            ]
        properties = {"java.io.tmpdir": config.parent, **_LOGGING, **self._properties}
        return [
            str(self._java),
            *_JVM_OPTIONS,
            *(f"-D{name}={value}" for name, value in properties.items()),
            "-cp",
            os.pathsep.join(map(str, self._installation.class_path)),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(config),
        ]

    def _running_process(self) -> subprocess.Popen[bytes]:
        if self._process is None or not self.is_running:
            raise RuntimeError(f"{self!r} is not running")
        return self._process

    def _serves(self, patience: float) -> bool:
        """Return whether this server serves clients, rather than another one that took the port first."""
        try:
            return self._guard is not None and self._guard.folder.name in self._asked("conf", patience)
        except OSError:
            return False

    def _port_taken(self) -> PortTakenError:
        return PortTakenError(
            f"port {self._port} of 127.0.0.1 is in use: end the process that listens there, or choose another port"
        )

    def _fail(self, what: str) -> None:
        tail = "\n".join(self.log.splitlines()[-30:])
        if _TAKEN in tail and not self.is_running and in_use(self.port):
            raise self._port_taken()
        error = PortTakenError if _TAKEN in tail else RuntimeError
        memory = self._installation is not None and self._installation.kind == MEMORY.kind
        java = "none, it is the memory server" if memory else java_version(self._java)
        raise error(f"the ZooKeeper server on port {self._port} {what}. Java: {java}. Its log:\n{tail}")


def _for_java(text: str) -> str:
    """Return the text of a properties file in pure ASCII: Java reads other bytes as Latin-1."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)


def _milliseconds(name: str, seconds: float) -> int:
    check_seconds(name, seconds)
    return round(seconds * 1000)
