"""`export`: a page for Prometheus on queues whose programs can't be instrumented.

The paths are read when the page is asked for, all at once, and at most every five seconds: a second Prometheus, or one
that asks more often, gets the same page. ZooKeeper out of reach is a value on the page, not the end of the command.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from .._kazoo.addresses import shown
from .._kazoo.link import Link
from .._kazoo.replies import kazoo_errors, node_of
from .._protocol.rules import FOLDERS
from .look import QueueListing, Scan
from .outcome import CommandError, Exit, say
from .server import ask_all, check_connected, link_of, told

_KEPT = 5.0  # seconds
_PREFIX = "zkconcurrent_path_"
_TELLS = {
    "up": "Whether the path could be read, and tells who holds: 1, or 0.",
    "waiters": "Contenders that wait at the path.",
    "holders": "Contenders that hold the path.",
    "holder_age_seconds": "How many seconds ago the oldest holder queued.",
}


class Page:
    """The page, which is read again once it is old enough."""

    def __init__(self, link: Link, paths: Sequence[str]) -> None:
        self._link = link
        self._paths = paths
        # One thread reads for all that ask meanwhile.
        self._lock = threading.Lock()
        self._text = ""
        self._read_at = -_KEPT

    def text(self) -> str:
        """Return the page."""
        with self._lock:
            if time.monotonic() >= self._read_at + _KEPT:
                # Also of a server that does not answer, it is asked no more often.
                self._text, self._read_at = "".join(self._lines()), time.monotonic()
            return self._text

    def _lines(self) -> Iterator[str]:
        values = self._read()
        for name, tells in _TELLS.items():
            yield f"# HELP {_PREFIX}{name} {tells}\n# TYPE {_PREFIX}{name} gauge\n"
            for path in self._paths:
                if (name, path) in values:
                    yield f'{_PREFIX}{name}{{path="{_escaped(path)}"}} {values[name, path]:.12g}\n'

    def _told_at(self, queue: QueueListing) -> str:
        """Return the path that a queue is told of: a part's only if its primitive is not told."""
        return queue.path if queue.path in self._paths else queue.folder

    def _read(self) -> dict[tuple[str, str], float]:
        """Read all paths; return what is told of each, by the metric's name and the path."""
        scan = Scan(self._link)
        try:
            with told(self._link):
                check_connected(self._link)
                queues = scan.queues(sorted(self._paths), 0)
                heads = {
                    f"{queue.folder}/{head}": self._told_at(queue) for queue in queues for head in queue.holders()[:1]
                }
                nodes = ask_all(self._link.get, list(heads))
        except CommandError as error:
            if error.code != Exit.UNREACHABLE:
                say(str(error))
            return {("up", path): 0 for path in self._paths}
        values: dict[tuple[str, str], float] = {}
        ages = [*zip(heads.values(), nodes, strict=True)]
        hidden = {path for path, got in ages if isinstance(got, kazoo_errors.NoAuthError)}
        for path in self._paths:
            # A semaphore has its contenders below it, and so has a `Queue`.
            parts = {path, *(f"{path}/{part}" for part in (*FOLDERS["Semaphore"], *FOLDERS["Queue"]))}
            if path in hidden or parts.intersection(scan.unreadable):
                values["up", path] = 0
                continue
            here = [(len(queue.names), len(queue.holders())) for queue in queues if self._told_at(queue) == path]
            # The nodes of kazoo's own recipes do not tell who holds: to call the path free would be wrong.
            values["up", path] = float(bool(here) or not scan.kazoos(path))
            if not values["up", path]:
                continue
            values["holders", path] = sum(holding for _, holding in here)
            values["waiters", path] = sum(all_ for all_, _ in here) - values["holders", path]
        now = time.time()
        for path, got in ages:
            # It may have gone meanwhile.
            if path not in hidden and not isinstance(got, Exception):
                age = max(0.0, now - node_of(got).ctime)
                values["holder_age_seconds", path] = max(age, values.get(("holder_age_seconds", path), 0.0))
        return values


def _escaped(label: str) -> str:
    """Return a label's value as Prometheus reads it."""
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class _Server(ThreadingTCPServer):
    """The server of the page. Not `HTTPServer`, which asks for its own name, and waits where nobody knows it."""

    daemon_threads = True
    allow_reuse_address = True
    # Of those that come at once, the system lets more than these dial again, a second later.
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], page: Page) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.page = page
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that has gone."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: _Server
    timeout = 10.0  # seconds

    def do_GET(self) -> None:
        """Send the page."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND, explain="The page is /metrics.")
            return
        page = self.server.page.text().encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page)

    def do_HEAD(self) -> None:
        """Send what comes before the page, as a load balancer's probe asks for."""
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        """Log nothing: all is well."""


def export(found: Namespace) -> int:
    """Serve the page until the command is ended."""
    with link_of(found) as link:
        try:
            server = _Server(found.listen, Page(link, found.paths))
        except OSError as error:
            why = f"--listen {shown(*found.listen)}: {error.strerror or error}"
            raise CommandError(Exit.NO_PROCESS, why) from None
        with closing(server.socket):
            say(f"the page is http://{shown(found.listen[0], server.server_address[1])}/metrics")
            server.serve_forever()
    return 0
