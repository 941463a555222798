"""The table of the metrics, the names of locks, and how the metrics are switched on and off; no lock is acquired."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client.parser import text_string_to_metric_families

import zkconcurrent.otel
import zkconcurrent.prometheus
from tests.helpers.processes import run_python
from zkconcurrent import (
    Acquired,
    Failed,
    LockEvent,
    LockLostError,
    LossCause,
    Released,
    namespace,
)
from zkconcurrent._observe import event_listeners
from zkconcurrent.metrics import MOST_NAMES, OTHER


@pytest.fixture(autouse=True)
def _nobody_listens() -> Iterator[None]:
    """Nothing is left behind."""
    yield
    assert not event_listeners.registered


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/order/17", "/order/*"),
        ("/order-17-item-4", "/order-*-item-*"),
        ("/order/6f9619ff-8b86-d011-b42d-00cf4fc964ff", "/order/*"),
        ("/order_6F9619FF-8B86-D011-B42D-00CF4FC964FF", "/order_*"),
        ("/order/3fa94c21", "/order/*"),
        ("/order_3fa94c21", "/order_*"),
        ("/order_3FA94C21_item", "/order_*_item"),
        ("/feedfacecafebeef", "/*"),
        ("/facade/feed", "/facade/feed"),
        ("/Straße", "/Straße"),
    ],
)
def test_ids_are_folded(path: str, name: str) -> None:
    """A hash beside an underscore, or in capitals, is one, too: in pieces it would be a name of its own."""
    assert LockEvent("Lock", path, "exclusive", 1, "", 0.0, 1, None).name == name


def listener() -> Any:
    """Return the only listener there is."""
    [registration] = event_listeners.registered
    return registration.listener


def cycle(path: str) -> None:
    """Tell the listener that a lock was acquired and released."""
    listener()(Acquired("Lock", path, "exclusive", 1, "me", 0.0, 1, None, 0.001, False))
    listener()(Released("Lock", path, "exclusive", 1, "me", 0.0, 2, None, 0.5))


def names_of(registry: prometheus_client.CollectorRegistry, metric: str) -> dict[str, float]:
    """Return the values of a metric's samples, by the names of the locks, as a scrape has them."""
    text = prometheus_client.generate_latest(registry).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {sample.labels["zkconcurrent_name"]: sample.value for sample in samples if sample.name == metric}


def test_names_are_bounded() -> None:
    """However many locks there are: 200 have a name, all others share one, and all are counted."""
    registry = prometheus_client.CollectorRegistry()
    remove = zkconcurrent.prometheus.instrument(registry=registry)
    alphabet = "ghijklmnopqrstu"
    for first in alphabet:
        for second in alphabet:
            cycle(f"/{first}{second}")
            cycle(f"/{first}{second}/17")
    counts = names_of(registry, "zkconcurrent_lock_acquisitions_total")
    assert len(counts) == MOST_NAMES + 1
    assert sum(counts.values()) == 450
    assert counts[OTHER] == 250
    assert counts["/gg"] == counts["/gg/*"] == 1
    remove()
    assert not list(registry.collect())


def test_a_condition_that_did_not_get_its_lock_back() -> None:
    """That is a loss, which no hold's end tells. Another error that tells of a loss is none: that was counted."""
    registry = prometheus_client.CollectorRegistry()
    remove = zkconcurrent.prometheus.instrument(registry=registry)
    for cause in (LossCause.NOT_REACQUIRED, LossCause.SESSION_EXPIRED):
        error = LockLostError("/order", "the hold was lost", cause)
        listener()(Failed("Lock", "/order", "exclusive", 0, "me", 0.0, 1, None, 0.5, error))
    assert names_of(registry, "zkconcurrent_lock_losses_total") == {"/order": 1}
    assert names_of(registry, "zkconcurrent_lock_wait_duration_seconds_count") == {"/order": 2}
    remove()


Instrument = Callable[..., Callable[[], None]]


@pytest.fixture(params=["prometheus", "otel"])
def instrument(request: pytest.FixtureRequest) -> Iterator[Instrument]:
    """What gives the metrics to a registry, or to a meter provider."""
    provider = MeterProvider(shutdown_on_exit=False)
    if request.param == "otel":
        yield partial(zkconcurrent.otel.instrument, meter_provider=provider)
    else:
        yield partial(zkconcurrent.prometheus.instrument, registry=prometheus_client.CollectorRegistry())
    provider.shutdown()


def test_they_are_there_once(instrument: Instrument) -> None:
    """A second call for one registry, or provider, is refused; once the first is removed, it is not."""
    remove = instrument()
    with pytest.raises(ValueError, match=r"metrics already: call what the first instrument\(\) has returned"):
        instrument()
    remove()
    remove()
    instrument()()


def test_a_wrong_scope(instrument: Instrument) -> None:
    """A scope must be a client or a namespace; anything else is refused, and the registry stays free."""
    with pytest.raises(TypeError, match="client must be"):
        instrument("zk://127.0.0.1:2181")
    instrument()()


def in_the_multiprocess_mode(program: str, folder: Path) -> list[str]:
    """Run a program whose processes write to a folder, and return its lines; `active()` counts waits and holds."""
    given = """
import prometheus_client
from prometheus_client import multiprocess
import zkconcurrent, zkconcurrent.prometheus

def of(owner):
    return "Lock", "/order", "exclusive", 1, owner, 0.0, 1, None

def active():
    registry = prometheus_client.CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    found = {sample.name: sample.value for metric in registry.collect() for sample in metric.samples}
    return [int(found.get(f"zkconcurrent_lock_{what}_active", 0)) for what in ("wait", "hold")]
"""
    done = run_python("-c", given + program, env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)})
    return done.stdout.splitlines()


@pytest.mark.fault(378)
def test_a_process_has_them_once_in_the_multiprocess_mode(tmp_path: Path) -> None:
    """All registries of a process write to one file, where two would overwrite each other's counts."""
    program = """
first, second = prometheus_client.CollectorRegistry(), prometheus_client.CollectorRegistry()
remove = zkconcurrent.prometheus.instrument(registry=first)
try:
    zkconcurrent.prometheus.instrument(registry=second)
except ValueError as error:
    print("multiprocess mode" in str(error))
remove()
zkconcurrent.prometheus.instrument(registry=second)()
"""
    assert in_the_multiprocess_mode(program, tmp_path) == ["True"]


def test_an_exporter_that_fails(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is logged once, with its traceback, and the lock works."""
    registry = prometheus_client.CollectorRegistry()
    remove = zkconcurrent.prometheus.instrument(registry=registry)

    def fail(*_: Any) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(prometheus_client.Counter, "inc", fail)
    local = namespace("local")
    for _ in range(2):
        with local.Lock("order") as held:
            assert held
    [record] = caplog.records
    assert "a listener failed" in record.getMessage()
    assert "zkconcurrent.metrics" in record.getMessage()
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "the disk is full"
    remove()


def test_of_several_processes(tmp_path: Path) -> None:
    """In the multiprocess mode, waits and holds are counted as they begin and end, and are none once it is removed.

    What is acquired at once, or is not acquired without a wait, leaves the number of waits alone.
    """
    program = """
from zkconcurrent import Acquired, Cancelled, Lost, Released, Suspect, TimedOut, Waiting, WouldBlock
from zkconcurrent._observe import event_listeners

remove = zkconcurrent.prometheus.instrument()
[registration] = event_listeners.registered

told = [
    Acquired(*of("a"), 0.0, False), Waiting(*of("b")), Waiting(*of("c")), WouldBlock(*of("d"), 0.1),
    Suspect(*of("a"), 1.0), TimedOut(*of("b"), 1.0), Lost(*of("a"), 1.0, None), Acquired(*of("c"), 1.0, True),
    Waiting(*of("b")), Cancelled(*of("b"), 1.0), Released(*of("c"), 1.0),
]
for event in told:
    registration.listener(event)
    print(*active())
registration.listener(Acquired(*of("g"), 0.0, False))
remove()
print(*active())
"""
    counts = ["0 1", "1 1", "2 1", "2 1", "2 1", "1 1", "1 0", "0 1", "1 1", "0 1", "0 0", "0 0"]
    assert in_the_multiprocess_mode(program, tmp_path) == counts


@pytest.mark.parametrize(
    ("module", "needs", "extra"),
    [("otel", "opentelemetry", "otel"), ("prometheus", "prometheus_client", "prometheus")],
)
def test_without_the_extra(module: str, needs: str, extra: str) -> None:
    """The library works without; the module that needs it says how to install it."""
    code = (
        f"import sys; sys.modules[{needs!r}] = None\n"
        "import zkconcurrent\n"
        "with zkconcurrent.namespace('local').Lock('order'): pass\n"
        f"try: import zkconcurrent.{module}\n"
        "except ImportError as error: print(error)\n"
    )
    done = run_python("-c", code)
    assert done.stdout.endswith(f"pip install 'zkconcurrent[{extra}]'\n")
