"""The table of the metrics, the names of locks, and how the metrics are switched on and off; no lock is acquired."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
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
from zkconcurrent._engine import telling
from zkconcurrent._engine.metrics import BUCKETS, MOST_NAMES, OTHER, TABLE, Instrument

rows = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)


@pytest.fixture(autouse=True)
def _nobody_listens() -> Iterator[None]:
    """Nothing is left behind."""
    yield
    assert not telling.registered


@rows
def test_names_follow_the_rules_of_opentelemetry(row: Instrument) -> None:
    """Lower case, words between dots, no unit and no `total`; a counted unit in braces, singular; seconds."""
    word = r"[a-z]+(?:_[a-z]+)*"
    for name in (row.name, *row.attributes):
        assert re.fullmatch(rf"{word}(?:\.{word})+", name)
    assert all(name.startswith("zkconcurrent.") or name == "error.type" for name in (row.name, *row.attributes))
    assert not re.search(r"\b(?:total|seconds?|ratio)\b", row.name)
    assert row.unit == "s" or re.fullmatch(r"\{[a-z]+(?:[^s]|ss)\}", row.unit)
    assert row.kind != "histogram" or (row.unit == "s" and row.name.endswith(".duration"))
    # What goes up and down has no plural, what is counted has.
    assert not (row.kind == "up-down counter" and row.name.endswith("s"))
    assert row.kind != "counter" or row.name.endswith("s")
    assert row.description.endswith(".")
    # A name is no namespace of another one.
    assert not any(other.name.startswith(f"{row.name}.") for other in TABLE)


@rows
def test_names_follow_the_rules_of_prometheus(row: Instrument) -> None:
    """Lower case, base units, `_total` for counters alone, no reserved suffix or label."""
    name, labels = row.prometheus_name, row.prometheus_labels
    assert re.fullmatch(r"zkconcurrent_[a-z_]+", name)
    assert all(re.fullmatch(r"[a-z_]+", label) and not label.startswith("__") for label in labels)
    assert not {"le", "quantile", "job", "instance"}.intersection(labels)
    assert name.endswith("_total") is (row.kind == "counter")
    assert name.removesuffix("_total").endswith("_seconds") is (row.unit == "s")
    assert not name.endswith(("_bucket", "_count", "_sum", "_created", "_info"))


def test_no_row_is_twice() -> None:
    """Each has a name of its own; and no lock's attribute tells a path, token, host or thread."""
    assert len({row.name for row in TABLE}) == len({row.prometheus_name for row in TABLE}) == len(TABLE)
    told = {name.rpartition(".")[2] for row in TABLE for name in row.attributes}
    assert told == {"primitive", "name", "mode", "outcome", "type", "cause", "client", "state"}
    assert list(BUCKETS) == sorted(BUCKETS)


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
    [registration] = telling.registered
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
    alphabet = "ghijklmnopqrstuvwxyz"
    for first in alphabet:
        for second in alphabet:
            cycle(f"/{first}{second}")
            cycle(f"/{first}{second}/17")
    counts = names_of(registry, "zkconcurrent_lock_acquisitions_total")
    assert len(counts) == MOST_NAMES + 1
    assert sum(counts.values()) == 800
    assert counts[OTHER] == 600
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


def test_a_registry_has_them_once() -> None:
    """A second call for one registry is refused and changes nothing; once the first is removed, it is not."""
    registry = prometheus_client.CollectorRegistry()
    remove = zkconcurrent.prometheus.instrument(registry=registry)
    with pytest.raises(ValueError, match=r"metrics already: call what the first instrument\(\) has returned"):
        zkconcurrent.prometheus.instrument(registry=registry)
    cycle("/order")
    assert names_of(registry, "zkconcurrent_lock_acquisitions_total") == {"/order": 1}
    other = zkconcurrent.prometheus.instrument(registry=prometheus_client.CollectorRegistry())
    remove()
    remove()
    other()
    zkconcurrent.prometheus.instrument(registry=registry)()


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
for scope in ("nothing", None):
    try:
        remove = zkconcurrent.prometheus.instrument(scope, registry=first)
    except TypeError:
        print("wrong")
for _ in range(2):
    try:
        zkconcurrent.prometheus.instrument(registry=second)
    except ValueError as error:
        print("multiprocess mode" in str(error))
remove()
remove()
zkconcurrent.prometheus.instrument(registry=second)()
"""
    assert in_the_multiprocess_mode(program, tmp_path) == ["wrong", "True", "True"]


def test_a_meter_provider_has_them_once() -> None:
    """So does a meter provider, which keeps its instruments: the next call finds them, and what they observe."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    remove = zkconcurrent.otel.instrument(meter_provider=provider)
    with pytest.raises(ValueError, match=r"metrics already: call what the first instrument\(\) has returned"):
        zkconcurrent.otel.instrument(meter_provider=provider)
    remove()
    remove()
    local = namespace("local")
    again = zkconcurrent.otel.instrument(local, meter_provider=provider)
    remove()
    with local.Lock("order"):
        data = reader.get_metrics_data()
        assert data is not None
        [scope] = data.resource_metrics[0].scope_metrics
        told = {metric.name: [*metric.data.data_points] for metric in scope.metrics}
    assert told["zkconcurrent.lock.hold.active"][0].value == 1
    assert told["zkconcurrent.lock.acquisitions"][0].value == 1
    again()
    provider.shutdown()


def test_a_wrong_scope() -> None:
    """A scope must be a client or a namespace; anything else is refused, and the registry stays free."""
    registry = prometheus_client.CollectorRegistry()
    provider = MeterProvider(shutdown_on_exit=False)
    wrong: Any = "zk://127.0.0.1:2181"
    with pytest.raises(TypeError, match="client must be"):
        zkconcurrent.prometheus.instrument(wrong, registry=registry)
    with pytest.raises(TypeError, match="client must be"):
        zkconcurrent.otel.instrument(wrong, meter_provider=provider)
    zkconcurrent.prometheus.instrument(registry=registry)()
    zkconcurrent.otel.instrument(meter_provider=provider)()
    provider.shutdown()


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
    assert "zkconcurrent._engine.metrics" in record.getMessage()
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "the disk is full"
    remove()


def test_of_several_processes(tmp_path: Path) -> None:
    """In the multiprocess mode, waits and holds are counted as they begin and end, and are none once it is removed.

    What is acquired at once, or is not acquired without a wait, leaves the number of waits alone.
    """
    program = """
from zkconcurrent import Acquired, Cancelled, Lost, Released, Suspect, TimedOut, Waiting, WouldBlock
from zkconcurrent._engine import telling

remove = zkconcurrent.prometheus.instrument()
[registration] = telling.registered

told = [
    Acquired(*of("a"), 0.0, False), Waiting(*of("b")), Waiting(*of("c")), WouldBlock(*of("d"), 0.1),
    TimedOut(*of("e"), 1.0),
    Suspect(*of("a"), 1.0), TimedOut(*of("b"), 1.0), Lost(*of("a"), 1.0, None), Acquired(*of("c"), 1.0, True),
    Waiting(*of("b")), Cancelled(*of("b"), 1.0), Released(*of("c"), 1.0), Waiting(*of("f")),
    Acquired(*of("g"), 0.0, False),
]
for event in told:
    registration.listener(event)
    print(type(event).__name__, *active())
remove()
print("removed", *active())
"""
    assert in_the_multiprocess_mode(program, tmp_path) == [
        "Acquired 0 1",
        "Waiting 1 1",
        "Waiting 2 1",
        "WouldBlock 2 1",
        "TimedOut 2 1",
        "Suspect 2 1",
        "TimedOut 1 1",
        "Lost 1 0",
        "Acquired 0 1",
        "Waiting 1 1",
        "Cancelled 0 1",
        "Released 0 0",
        "Waiting 1 0",
        "Acquired 1 1",
        "removed 0 0",
    ]


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
