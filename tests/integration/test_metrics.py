"""What Prometheus and OpenTelemetry are told of a program: a real scrape, and the SDK's readers and exporters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.request import ProxyHandler, build_opener

import prometheus_client
import pytest
from kazoo.client import KazooClient
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client.parser import text_string_to_metric_families

import zkconcurrent.otel
import zkconcurrent.prometheus
from tests.conftest import FAST, Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.processes import in_forked_child
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    DeadlockError,
    DetachedLock,
    Lock,
    LockLostError,
    ReadWriteLock,
    RLock,
    Semaphore,
    WaitCancelledError,
    aio,
    namespace,
)
from zkconcurrent._engine.session import Session
from zkconcurrent._observe import event_listeners
from zkconcurrent._observe.event_types import fold
from zkconcurrent.metrics import BUCKETS, CLIENTS, HELD, INSTRUMENTS, MARGIN, OLDEST, WAITING, Instrument

Sample = tuple[str, frozenset[tuple[str, str]]]
Scrape = Callable[[], dict[Sample, float]]
Collected = dict[str, dict[frozenset[tuple[str, Any]], Any]]
Collect = Callable[..., Callable[[], Collected]]
Spans = tuple[TracerProvider, InMemorySpanExporter]


@pytest.fixture(autouse=True)
def _nobody_listens() -> Iterator[None]:
    """Nothing is left behind."""
    yield
    assert not event_listeners.registered


@pytest.fixture
def until_the_end() -> Iterator[ExitStack]:
    """Functions that the end of the test calls, the last first."""
    with ExitStack() as stack:
        yield stack


def ask(port: int) -> str:
    """Scrape, past any proxy."""
    with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def parsed(text: str) -> dict[Sample, float]:
    """Return the samples of a scrape, as Prometheus' parser reads them."""
    families = text_string_to_metric_families(text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@pytest.fixture
def scraped(until_the_end: ExitStack) -> Callable[..., Scrape]:
    """Export to Prometheus, with a scope; what that returns scrapes by HTTP."""

    def begin(scope: Any = None) -> Scrape:
        registry = prometheus_client.CollectorRegistry()
        until_the_end.callback(zkconcurrent.prometheus.instrument(scope, registry=registry))
        server, thread = prometheus_client.start_http_server(0, "127.0.0.1", registry=registry)
        until_the_end.callback(thread.join)
        until_the_end.callback(server.server_close)
        until_the_end.callback(server.shutdown)
        return lambda: parsed(ask(server.server_port))

    return begin


@pytest.fixture
def collected(until_the_end: ExitStack) -> Collect:
    """Export to OpenTelemetry's SDK, with a scope; what that returns collects."""

    def begin(scope: Any = None, **more: Any) -> Callable[[], Collected]:
        reader = InMemoryMetricReader()
        provider = MeterProvider([reader], shutdown_on_exit=False)
        until_the_end.callback(provider.shutdown)
        until_the_end.callback(zkconcurrent.otel.instrument(scope, meter_provider=provider, **more))

        def collect() -> Collected:
            data = reader.get_metrics_data()
            assert data is not None
            return {
                metric.name: {frozenset(dict(point.attributes).items()): point for point in metric.data.data_points}
                for of_resource in data.resource_metrics
                for of_scope in of_resource.scope_metrics
                for metric in of_scope.metrics
            }

        return collect

    return begin


@pytest.fixture
def spans(until_the_end: ExitStack) -> Spans:
    """A provider of tracers, and what it exports."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    until_the_end.callback(provider.shutdown)
    return provider, exporter


def labels(row: Instrument, *values: str) -> frozenset[tuple[str, str]]:
    """Return the labels of a sample, some of which may be empty."""
    return frozenset(zip(row.prometheus_labels, values, strict=True))


def everything(zk: KazooClient, other: KazooClient, path: str, in_thread: InThread) -> None:
    """Have acquires end in each way: at once, after a wait, not in time, at a try, cancelled, failed, in a deadlock.

    And have a hold lost, and told.
    """
    lock, far = RLock(zk, f"{path}/order-17"), RLock(other, f"{path}/order-17")
    with far:
        assert not lock.acquire(blocking=False)
        assert not lock.acquire(timeout=0.05)
        cancelled = in_thread(lock.acquire)
        eventually(lock.cancel_waits)
        assert isinstance(cancelled.exception(10), WaitCancelledError)
        waiting = in_thread(lambda: lock.acquire() and lock.release())
        eventually(lambda: any(call.story and call.story.waits for call in Session.of(zk).calls))
        with pytest.raises(DeadlockError):
            RLock(zk, f"{path}/order-17").acquire()
    waiting.result(10)
    semaphore = Semaphore(zk, f"{path}/permits", 2)
    with semaphore, pytest.raises(ValueError, match="value=2"):
        Semaphore(other, f"{path}/permits", 3).acquire()
    lock.acquire()
    holder = lock.owner()
    assert holder is not None
    other.delete(holder.node)
    assert lock.lost.wait(20)
    with pytest.raises(LockLostError):
        lock.release()


def expected(path: str) -> dict[tuple[str, ...], int]:
    """Return what `everything` adds up to: counts by instrument and values."""
    lock = ("RLock", fold(f"{path}/order-17"), "exclusive")
    permits = ("Semaphore", fold(f"{path}/permits"), "shared")
    waits, holds = "zkconcurrent.lock.wait.duration", "zkconcurrent.lock.hold.duration"
    acquisitions = "zkconcurrent.lock.acquisitions"
    return {
        (acquisitions, *lock, "uncontended"): 2,
        (acquisitions, *lock, "waited"): 1,
        (acquisitions, *lock, "would_block"): 1,
        (acquisitions, *permits, "uncontended"): 1,
        (waits, *lock, "acquired", ""): 1,
        (waits, *lock, "timeout", ""): 1,
        (waits, *lock, "cancelled", ""): 1,
        (waits, *lock, "deadlock", ""): 1,
        (waits, *permits, "error", "ValueError"): 1,
        (holds, *lock, "released"): 2,
        (holds, *lock, "lost"): 1,
        (holds, *permits, "released"): 1,
        ("zkconcurrent.lock.losses", *lock, "node_deleted"): 1,
        ("zkconcurrent.deadlocks", *lock): 1,
    }


def test_all_of_the_table(
    zk: KazooClient,
    connect: Connect,
    zk_path: str,
    scraped: Callable[..., Scrape],
    collected: Collect,
    until_the_end: ExitStack,
    in_thread: InThread,
) -> None:
    """Each row is in a scrape and in what the SDK collects, with its attributes, and the counts are right.

    OpenTelemetry's own exporter to Prometheus gives the same names and labels, so one dashboard serves both.
    """
    scrape, collect, path = scraped(), collected(), zk_path
    reader = PrometheusMetricReader(disable_target_info=True)
    until_the_end.callback(prometheus_client.REGISTRY.unregister, reader._collector)
    provider = MeterProvider([reader], shutdown_on_exit=False)
    until_the_end.callback(zkconcurrent.otel.instrument(meter_provider=provider))
    everything(zk, connect(), path, in_thread)
    rows = {row.name: row for row in INSTRUMENTS}

    def counts() -> dict[tuple[str, ...], float]:
        now = scrape()
        found = {}
        for name, *values in expected(path):
            row = rows[name]
            suffix = "_count" if row.kind == "histogram" else ""
            found[(name, *values)] = now.get((row.prometheus_name + suffix, labels(row, *values)), 0.0)
        return found

    # The loss is told on a thread of the library.
    eventually(lambda: counts() == expected(path), f"{counts()}")
    with Lock(zk, f"{path}-held"):
        now, data = scrape(), collect()
        text = prometheus_client.generate_latest(prometheus_client.REGISTRY).decode()
    exported = {(name, frozenset(key for key, _ in told)) for name, told in now}
    for row in INSTRUMENTS:
        suffix = "_count" if row.kind == "histogram" else ""
        assert (row.prometheus_name + suffix, frozenset(row.prometheus_labels)) in exported
        # An attribute without a value is left out.
        told = {frozenset(key for key, _ in point) for point in data[row.name]}
        assert frozenset().union(*told) == set(row.attributes)
    assert data.keys() == rows.keys()
    for name, *values in expected(path):
        attributes = {key: value for key, value in zip(rows[name].attributes, values, strict=True) if value}
        point = data[name][frozenset(attributes.items())]
        assert getattr(point, "count", getattr(point, "value", None)) == expected(path)[(name, *values)]
        assert getattr(point, "explicit_bounds", BUCKETS) == BUCKETS

    # Ours has each label, and theirs those with a value: to Prometheus these are the same.
    def without_empty(samples: dict[Sample, float]) -> set[Sample]:
        return {
            (name, frozenset((key, value) for key, value in told if value and not key.startswith("otel_scope")))
            for name, told in samples
            if name.startswith("zkconcurrent_")
        }

    assert without_empty(parsed(text)) == without_empty(now)


def test_what_is_active(
    zk: KazooClient, connect: Connect, zk_path: str, scraped: Callable[..., Scrape], in_thread: InThread
) -> None:
    """Waits, holds and the oldest hold are those of the moment, for all kinds of locks; then they are 0."""
    scrape, other = scraped(namespace(zk, zk_path)), connect()
    begun = time.monotonic()
    locks: list[Any] = [
        Lock(zk, f"{zk_path}/lock"),
        Lock(zk, f"{zk_path}/unfair", fair=False),
        RLock(zk, f"{zk_path}/rlock"),
        ReadWriteLock(zk, f"{zk_path}/read").read_lock,
        ReadWriteLock(zk, f"{zk_path}/write").write_lock,
        DetachedLock(zk, f"{zk_path}/detached", "me"),
    ]
    semaphore = Semaphore(zk, f"{zk_path}/permits", 3)
    for lock in locks:
        lock.acquire()
    semaphore.acquire(permits=2)
    keys = [
        ("Lock", "lock", "exclusive"),
        ("Lock", "unfair", "exclusive"),
        ("RLock", "rlock", "exclusive"),
        ("ReadWriteLock", "read", "shared"),
        ("ReadWriteLock", "write", "exclusive"),
        ("DetachedLock", "detached", "exclusive"),
        ("Semaphore", "permits", "shared"),
    ]

    def active(row: Instrument) -> dict[tuple[str, ...], float]:
        found = {told: value for (name, told), value in scrape().items() if name == row.prometheus_name}
        return {key: found[each] for key in keys if (each := labels(row, *key)) in found}

    assert active(HELD) == dict.fromkeys(keys, 1)
    assert active(WAITING) == dict.fromkeys(keys, 0)
    awaited = [locks[0], locks[1], locks[4]]
    waiting = [in_thread(lambda lock=lock: lock.acquire() and lock.release()) for lock in awaited]
    waiting.append(in_thread(lambda: semaphore.acquire(permits=2) and semaphore.release(2)))
    waits = {key: float(key in (keys[0], keys[1], keys[4], keys[6])) for key in keys}
    eventually(lambda: active(WAITING) == waits)
    oldest = active(OLDEST)
    assert oldest.keys() == {*keys}
    assert all(0 < value < time.monotonic() - begun for value in oldest.values())
    # Those of another client are not in this scope.
    with Lock(other, f"{zk_path}/other"):
        assert all("other" not in dict(told).values() for _, told in scrape())
    for lock in locks:
        lock.release()
    semaphore.release(2)
    for each in waiting:
        each.result(10)
    assert active(HELD) == active(OLDEST) == active(WAITING) == dict.fromkeys(keys, 0)


def test_a_forked_child_has_nothing_of_its_parents(
    zk: KazooClient, zk_path: str, scraped: Callable[..., Scrape]
) -> None:
    """What the parent holds, and the parent's clients, are not the child's."""
    scraped()
    [registration] = event_listeners.registered
    recorder: Any = registration.listener

    def look() -> None:
        found = recorder.observe()
        assert (sum(found[HELD].values()), len(found[CLIENTS]), len(found[MARGIN])) == (0, 0, 0)

    with Lock(zk, zk_path), DetachedLock(zk, f"{zk_path}-detached", "me"):
        assert sum(recorder.observe()[HELD].values()) == 2
        in_forked_child(look)


@pytest.mark.fault(314)
def test_an_acquire_out_of_reach(
    connect: Connect, zk_path: str, scraped: Callable[..., Scrape], proxy: Proxy, in_thread: InThread
) -> None:
    """An acquire that waits for ZooKeeper is a wait, too, so that people see that nobody gets in."""
    client = connect(proxy.hosts, **FAST)
    scrape, lock = scraped(namespace(client, zk_path)), Lock(client, f"{zk_path}/lock")

    def waits() -> float:
        return scrape()[WAITING.prometheus_name, labels(WAITING, "Lock", "lock", "exclusive")]

    with lock:
        pass
    assert waits() == 0
    proxy.refuse()
    proxy.cut()
    waiting = in_thread(lock.acquire)
    eventually(lambda: waits() == 1)
    proxy.resume()
    assert waiting.result(30)
    assert waits() == 0
    lock.release()


def test_clients(connect: Connect, zk_path: str, scraped: Callable[..., Scrape], proxy: Proxy) -> None:
    """Each has a name, without a password, and a state; a lease margin while it holds; none after it was stopped."""
    scrape = scraped()
    one, two = (connect(proxy.hosts, auth_data=[("digest", "user:hidden")], **FAST) for _ in range(2))
    lock = Lock(one, zk_path)

    def state(client: str) -> dict[str, float]:
        keys = {each: labels(CLIENTS, client, each) for each in ("connected", "out_of_reach", "given_up")}
        now = scrape()
        return {
            each: now[CLIENTS.prometheus_name, key]
            for each, key in keys.items()
            if (CLIENTS.prometheus_name, key) in now
        }

    def margin() -> float | None:
        return scrape().get((MARGIN.prometheus_name, labels(MARGIN, proxy.hosts)))

    connected = {"connected": 1.0, "out_of_reach": 0.0, "given_up": 0.0}
    assert state(proxy.hosts) == connected
    assert margin() is None
    Lock(two, f"{zk_path}-two")
    assert state(f"{proxy.hosts}#2") == connected
    with lock:
        assert 0 < (margin() or 0) <= 6
        assert not any("hidden" in value for _, told in scrape() for _, value in told)
        proxy.refuse()
        proxy.cut()
        eventually(lambda: state(proxy.hosts) == {"connected": 0.0, "out_of_reach": 1.0, "given_up": 0.0})
        proxy.resume()
        eventually(lambda: state(proxy.hosts) == connected)
    assert margin() is None
    one.stop()
    assert state(f"{proxy.hosts}#2") == {}


def test_traces(
    zk: KazooClient,
    connect: Connect,
    zk_path: str,
    collected: Collect,
    spans: Spans,
    monkeypatch: pytest.MonkeyPatch,
    in_thread: InThread,
) -> None:
    """An acquire of 1 ms or longer is a span, of its own time, below the current one; others are events there."""
    provider, exporter = spans
    collected(namespace(zk, zk_path), tracer_provider=provider)
    tracer = provider.get_tracer("program")
    lock, far = Lock(zk, f"{zk_path}/order-17"), Lock(connect(), f"{zk_path}/order-17")

    def wait() -> int:
        with tracer.start_as_current_span("waits"), lock:
            return lock.fencing_token

    with far:
        begun = time.time_ns()
        waiting = in_thread(wait)
        eventually(lambda: len(far.waiters()) == 1)
        time.sleep(0.05)
        released = time.time_ns()
    token = waiting.result(10)
    acquire, program = exporter.get_finished_spans()
    assert program.name == "waits"
    assert acquire.name == "zkconcurrent.acquire"
    assert acquire.parent is not None
    assert acquire.parent.span_id == program.get_span_context().span_id
    assert begun - 5e6 < acquire.start_time < released - 50e6 < released < acquire.end_time < time.time_ns()
    name = {"zkconcurrent.primitive": "Lock", "zkconcurrent.name": "order-*", "zkconcurrent.mode": "exclusive"}
    path = {"zkconcurrent.path": f"{zk_path}/order-17"}
    assert acquire.attributes == {**name, **path, "zkconcurrent.outcome": "acquired", "zkconcurrent.token": token}
    assert acquire.status.status_code is StatusCode.UNSET
    exporter.clear()

    # On a slow machine, an uncontended acquire takes as long.
    monkeypatch.setattr(zkconcurrent.otel, "LONG", 10.0)
    with far, tracer.start_as_current_span("tries"):
        assert not lock.acquire(blocking=False)
    with lock, tracer.start_as_current_span("nothing"):
        pass
    with tracer.start_as_current_span("at once"), lock:
        token = lock.fencing_token
    tries, nothing, at_once = exporter.get_finished_spans()
    assert [event.name for event in tries.events] == ["zkconcurrent.acquire"]
    assert tries.events[0].attributes == {**name, **path, "zkconcurrent.outcome": "would_block"}
    assert not nothing.events
    outcome = {"zkconcurrent.outcome": "uncontended", "zkconcurrent.token": token}
    assert at_once.events[0].attributes == {**name, **path, **outcome}


def test_a_trace_of_what_failed(
    zk: KazooClient, connect: Connect, zk_path: str, collected: Collect, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its span has the error; a timeout is none. In a task, the current span is the task's."""
    monkeypatch.setattr(zkconcurrent.otel, "LONG", 0.0)
    provider, exporter = spans
    collected(other := connect(), tracer_provider=provider)
    tracer = provider.get_tracer("program")
    with Semaphore(zk, f"{zk_path}-permits", 2), pytest.raises(ValueError, match="value=2"):
        Semaphore(other, f"{zk_path}-permits", 3).acquire()

    async def main(name: str) -> None:
        with tracer.start_as_current_span(name):
            assert not await aio.Lock(other, f"{zk_path}-lock").acquire(timeout=0.05)

    async def both() -> None:
        await asyncio.gather(main("one"), main("two"))

    with Lock(zk, f"{zk_path}-lock"):
        asyncio.run(both())
    finished = exporter.get_finished_spans()
    failed = finished[0]
    assert failed.status.status_code is StatusCode.ERROR
    assert "value=2" in (failed.status.description or "")
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "ValueError"
    assert [event.name for event in failed.events] == ["exception"]
    of_tasks: dict[str, ReadableSpan] = {span.name: span for span in finished if span.name in ("one", "two")}
    parents = {span.parent.span_id for span in finished[1:] if span.name == "zkconcurrent.acquire" and span.parent}
    assert parents == {span.get_span_context().span_id for span in of_tasks.values()}
    assert all(span.status.status_code is StatusCode.UNSET for span in finished[1:])
