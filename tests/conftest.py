"""The base of all tests, on top of the fixtures of `zkconcurrent.testing`: more clients, threads, and waiting."""

from __future__ import annotations

import asyncio.constants
import faulthandler
import gc
import math
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from kazoo.client import KazooClient

from tests.helpers.class_archive import use_archive
from tests.helpers.eventually import PATIENCE, eventually
from tests.helpers.proxy import Proxy
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

# A run in the background of a shell inherits that both are ignored, and so would what the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# For each callback, asyncio's debug mode notes ten frames, and for each future the whole stack, pytest's too; for each
# frame it looks whether the source file has changed. That is half of what the tests of `aio` compute; two frames tell
# where it was made.
asyncio.constants.DEBUG_STACK_DEPTH = 2
traceback.extract_stack.__defaults__ = (None, asyncio.constants.DEBUG_STACK_DEPTH)

# How long anything takes says more of the machine than of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

T = TypeVar("T")
# A test that hangs ends its whole process after so long, or half a minute less, with the stack of each thread. The
# longest one takes a minute, and one that computes all the time several, where many share the processors.
HANGS = 600.0
STDERR = pytest.StashKey[int]()
ARMED = pytest.StashKey[float]()
TESTS = Path(__file__).parent
SLOW_TO_START = {"peer", "services", "strict"}  # fixtures: a Java process, three servers, one with its own settings
SERVERLESS = ("unit", "simulation", "mutants", "soak/test_history.py")
# Tests that a change of the library can hardly break without breaking others: those of the tools beside it, and the
# tests of threads once more on tasks.
LATER = ("testing/", "examples/", "benchmarks/", "unit/test_typing.py", "aio/test_tests_of_threads.py")
FAST = {"connection_retry": {"max_tries": -1, "delay": 0.05, "max_delay": 0.2}}
Connect = Callable[..., KazooClient]
InThread = Callable[..., "Future[Any]"]


def pytest_configure(config: pytest.Config) -> None:
    """Keep the real standard error: while a test runs, its file descriptor is one of pytest's."""
    config.stash[STDERR] = os.dup(2)
    use_archive()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a server, and those for later; where several processes share the tests, order them.

    The long ones begin, the soak first. Those that compute are spread among those that wait. Of these, the long ones
    are for one of the processes; so are those that share a server or a process that takes long to start.
    """
    long = {item for item in items if item.get_closest_marker("long") is not None}
    for item in items:
        waits = needs_server(item)
        if waits:
            item.add_marker(pytest.mark.server)
        if shared := SLOW_TO_START.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(shared.pop()))
        elif item in long and not waits:
            item.add_marker(pytest.mark.xdist_group("computing"))
        if path_of(item).startswith(LATER):
            item.add_marker(pytest.mark.later)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    kinds: dict[tuple[bool, bool], list[pytest.Item]] = {}
    for item in items:
        kind = (item in long, item.get_closest_marker("server") is not None)
        kinds.setdefault(kind, []).append(item)
    when = {
        item: -(n + 1) / len(some) if is_long else n / len(some)
        for (is_long, _), some in kinds.items()
        for n, item in enumerate(some)
    }
    items.sort(key=when.__getitem__)


def pytest_collection_finish() -> None:
    """Have no collection of garbage look at pytest's own objects and all modules: hundreds of tests collect."""
    gc.collect()
    gc.freeze()


def path_of(item: pytest.Item) -> str:
    """Return the path of a test's file in the folder of the tests."""
    return item.path.relative_to(TESTS).as_posix()


def needs_server(item: pytest.Item) -> bool:
    """Return whether a test may need a ZooKeeper, or Java."""
    if path_of(item).startswith(SERVERLESS):
        return False
    bench = item.callspec.params.get("bench") if hasattr(item, "callspec") else None
    return getattr(bench, "__name__", "") != "Simulated"


# Not pytest's own faulthandler_timeout, which looks away once a test has failed: its threads may make its end hang.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, bool | None, bool | None]:
    """End the process if a test does not end, with all that it needs and leaves."""
    config, now = item.config, time.monotonic()
    if now - config.stash.get(ARMED, -HANGS) > 0.05 * HANGS:  # not for each test, as that starts a thread
        config.stash[ARMED] = now
        faulthandler.dump_traceback_later(HANGS, exit=True, file=config.stash[STDERR])
    try:
        return (yield)
    finally:
        if nextitem is None:
            faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Have an interrupt that misses the call which it was to strike fail its test, and not end the run."""
    try:
        return (yield)
    except KeyboardInterrupt as error:
        if "PYTEST_XDIST_WORKER" not in os.environ:
            raise
        raise AssertionError("an interrupt came before or after the call that it was to strike") from error


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[Server]:
    """A running ZooKeeper server, which removes no container that is empty while a test looks at it."""
    with Server(container_check_interval=3600.0) as server:
        yield server


@pytest.fixture(scope="module")
def services() -> Iterator[list[Server]]:
    """Three services that know nothing of each other."""
    with ExitStack() as stack:
        yield [stack.enter_context(Server(container_check_interval=3600.0)) for _ in range(3)]


@pytest.fixture
def connect(zookeeper: Server) -> Iterator[Connect]:
    """Open one more client, of a session of its own, which is stopped after the test."""
    clients = []

    def open_client(hosts: str = zookeeper.hosts, timeout: float = 6.0, **options: Any) -> KazooClient:
        client = KazooClient(hosts, timeout=timeout, **options)
        clients.append(client)
        client.start()
        return client

    yield open_client
    for client in clients:
        client.stop()
        client.close()


@pytest.fixture
def proxy(zookeeper: Server) -> Iterator[Proxy]:
    """A proxy before the server, which does no harm until it is told to."""
    with Proxy(zookeeper.hosts) as proxy:
        yield proxy


@pytest.fixture
def counted(connect: Connect, proxy: Proxy) -> KazooClient:
    """A client whose requests the proxy counts; its first heartbeat was before."""
    client = connect(hosts=proxy.hosts, timeout=30.0)
    await_heartbeat(client)
    return client


def await_heartbeat(client: KazooClient) -> None:
    """Wait until the first heartbeat of a client's connection is answered."""
    heartbeat = Session.of(client).heartbeat
    eventually(lambda: heartbeat._last > -math.inf and not heartbeat._unanswered)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Collect no garbage: an interrupt that strikes in a finalizer, or in hypothesis's callback there, is ignored."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def nothing_left(
    zookeeper: Server,  # noqa: ARG001 - it is there before
    caplog: pytest.LogCaptureFixture,
) -> Iterator[None]:
    """Every thread and descriptor of the test is gone at its end."""

    def there_is() -> tuple[int, int]:
        gc.collect()
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    before = there_is()
    yield
    caplog.get_records("call").clear()  # the errors that kazoo has logged keep its client, and so our keeper
    eventually(lambda: there_is() <= before, f"{before} threads and descriptors")


@pytest.fixture
def in_thread() -> Iterator[InThread]:
    """Run a function in a thread of its own; the future has what came of it."""
    threads = []

    def start(function: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        thread = threading.Thread(target=run)
        threads.append(thread)
        thread.start()
        return future

    yield start
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a thread of the test hangs"
