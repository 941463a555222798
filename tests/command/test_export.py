"""`zkconcurrent export`: a page that Prometheus reads, of the paths as they are, at most each five seconds."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeAlias

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl
from prometheus_client.parser import text_string_to_metric_families

import zkconcurrent
from tests.command.conftest import Run, end_of, nodes
from tests.command.test_look import READS, look
from tests.command.test_watch import interrupt
from tests.conftest import Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy

__all__ = ["look"]

# The values of the page, by metric and path.
Values: TypeAlias = dict[tuple[str, str], float]


def page_of(process: subprocess.Popen[str]) -> str:
    """Return the address of the page, as the command tells it."""
    assert process.stderr is not None
    found = re.fullmatch(r"zkconcurrent: the page is (http://.+/metrics)\n", process.stderr.readline())
    assert found
    return found[1]


def scrape(page: str) -> Values:
    """Read the page, as Prometheus does."""
    with urllib.request.urlopen(page, timeout=60) as reply:
        assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = reply.read().decode()
    families = list(text_string_to_metric_families(text))
    assert {each.type for each in families} == {"gauge"}
    return {
        (sample.name.removeprefix("zkconcurrent_path_"), sample.labels["path"]): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.fixture
def export(look: Run) -> Iterator[Run]:
    """Start `zkconcurrent export` at a free port; it is ended by Ctrl-C, quietly."""
    started: list[subprocess.Popen[str]] = []

    def start_export(*paths: str, **options: str) -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = look("export", *paths, "--listen", "127.0.0.1:0", **options)
        started.append(process)
        return process

    yield start_export
    for process in started:
        interrupt(process)


def test_a_scrape(export: Run, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The page tells who waits, who holds and for how long, at paths of any kind and name; a missing path is free."""
    paths = [f"{zk_path}/{name}" for name in ('lo"ck\\n', "permits", "free", "missing")]
    lock, permits = zkconcurrent.Lock(zk, paths[0]), zkconcurrent.Semaphore(zk, paths[1], 2)
    lock.acquire()
    began = time.time()
    permits.acquire(permits=2)
    zk.ensure_path(paths[2])

    def use(lock: zkconcurrent.Lock | zkconcurrent.Semaphore) -> None:
        with lock:
            pass

    others = [
        *(zkconcurrent.Lock(connect(), lock.path), zkconcurrent.Lock(connect(), lock.path)),
        zkconcurrent.Semaphore(connect(), permits.path, 2),
    ]
    used = [in_thread(use, each) for each in others]
    eventually(lambda: len(lock.waiters()) == 2 and len(permits.waiters()) == 1)
    found = scrape(page_of(export(*paths)))
    ages = {path: found.pop(("holder_age_seconds", path)) for path in paths[:2]}
    assert found == {
        **{("up", path): 1 for path in paths},
        **{("holders", path): n for path, n in zip(paths, (1, 2, 0, 0), strict=True)},
        **{("waiters", path): n for path, n in zip(paths, (2, 1, 0, 0), strict=True)},
    }
    assert all(0 <= age <= time.time() - began + 1 for age in ages.values())
    lock.release()
    permits.release(2)
    for each in used:
        each.result()


def test_read_at_most_each_five_seconds(export: Run, zk: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """All that ask within five seconds get one page, of one read; then it is read again."""
    with proxy.counting() as count:
        page = page_of(export(zk_path, url=f"zk://{proxy.hosts}"))
        began = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            first, *others = pool.map(scrape, [page] * 8)
        assert all(each == first for each in others)
        requests = [message.name for message in count.trace if message.kind == "request"]
        with zkconcurrent.Lock(zk, zk_path):
            eventually(lambda: scrape(page)["holders", zk_path] == 1)
            found = scrape(page)
    assert time.monotonic() - began >= 5
    assert found["waiters", zk_path] == 0
    assert requests.count("getChildren") == 1
    assert set(requests) <= READS
    names = [message.name for message in count.trace if message.kind == "request"]
    assert (names.count("getChildren"), names.count("getData")) == (2, 1)


def test_what_cannot_be_read(export: Run, zk: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """A path that may not be read is down, and so are all in an outage; afterwards they are up."""
    secret = f"{zk_path}/secret"
    zk.ensure_path(zk_path)
    zk.create(secret, acl=[make_acl("digest", "other:xyz", all=True)])
    page = page_of(export(zk_path, secret, url=f"zk://{proxy.hosts}?timeout=1"))
    up = {("up", zk_path): 1, ("up", secret): 0, ("holders", zk_path): 0, ("waiters", zk_path): 0}
    assert scrape(page) == up
    proxy.refuse()
    proxy.cut()
    eventually(lambda: scrape(page) == {("up", zk_path): 0, ("up", secret): 0})
    proxy.resume()
    eventually(lambda: scrape(page) == up)


def test_a_holder_that_may_not_be_read(export: Run, zk: KazooClient, zk_path: str) -> None:
    """Its path is down: otherwise it would be held by somebody of no age, and no alert would tell of that."""
    zk.ensure_path(zk_path)
    hidden = [make_acl("digest", "other:xyz", all=True)]
    zk.create(f"{zk_path}/_c_{uuid.uuid4()}-lock-", acl=hidden, ephemeral=True, sequence=True)
    assert scrape(page_of(export(zk_path))) == {("up", zk_path): 0}


def test_the_parts_of_a_semaphore(export: Run, zk: KazooClient, zk_path: str) -> None:
    """They are told once, with the semaphore, also if somebody asks for them by name."""
    with zkconcurrent.Semaphore(zk, zk_path, 1):
        found = scrape(page_of(export(f"{zk_path}/locks", f"{zk_path}/leases", zk_path)))
    assert (found["holders", zk_path], found["waiters", zk_path]) == (1, 0)


def test_a_part_alone(export: Run, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Fault 444: where only a part is asked for, it is told by its own path; and an idle consumer holds nothing."""
    permits, queue = zkconcurrent.Semaphore(zk, f"{zk_path}/s", 1), zkconcurrent.Queue(zk, f"{zk_path}/q")
    idle = in_thread(queue.get)
    eventually(lambda: nodes(zk, f"{queue.path}/consumers") != [])
    leases, consumers = f"{permits.path}/leases", f"{queue.path}/consumers"
    with permits:
        found = scrape(page_of(export(leases, consumers)))
    assert (found["holders", leases], found["waiters", leases]) == (1, 0)
    assert found["holder_age_seconds", leases] >= 0
    assert (found["holders", consumers], found["waiters", consumers]) == (0, 1)
    queue.put(b"item")
    idle.result()


def test_many_at_once(export: Run, zk_path: str) -> None:
    """Those that come together need not dial again."""
    process = export(zk_path)
    host, _, port = page_of(process).split("/")[2].rpartition(":")
    process.send_signal(signal.SIGSTOP)
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=0.9))
    process.send_signal(signal.SIGCONT)


def test_other_pages(export: Run, zk_path: str) -> None:
    """There is no other page; a client that goes amid its request harms nobody.

    Fault 445: HEAD gets the page's headers.
    """
    page = page_of(export(zk_path))
    with urllib.request.urlopen(urllib.request.Request(page, method="HEAD"), timeout=60) as reply:
        assert (reply.status, reply.read()) == (200, b"")
        assert int(reply.headers["Content-Length"]) > 0
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(page.replace("metrics", "other"), timeout=60)
    port = int(page.split(":")[2].partition("/")[0])
    for half in (b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n"):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(half)
        # A reset, not an orderly end.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        client.close()
    assert scrape(f"{page}?name[]=x")["up", zk_path] == 1


def test_wrong_uses(look: Run, zk_path: str) -> None:
    """Too many paths, an odd one, and an odd address are a wrong use; an address that is taken is 71."""
    for odd in (
        [f"{zk_path}/{n}" for n in range(201)],
        [zk_path, zk_path],
        ["relative"],
        ["/"],
        *([zk_path, "--listen", odd] for odd in ("9141", ":9141", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536")),
    ):
        code, out, err = end_of(look("export", *odd))
        assert (code, out, err.count("\n")) == (64, "", 1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, out, err = end_of(look("export", zk_path, "--listen", address))
    assert (code, out, err) == (71, "", f"zkconcurrent: --listen {address}: Address already in use\n")


def test_its_end(look: Run, zk_path: str) -> None:
    """It listens at an address of IPv6, too; TERM ends it as it ends other programs."""
    process = look("export", zk_path, "--listen", "[::1]:0")
    page = page_of(process)
    assert page.startswith("http://[::1]:")
    assert scrape(page)["up", zk_path] == 1
    process.terminate()
    assert process.wait(30) == -signal.SIGTERM
    assert process.stderr.read() == ""
