"""Metrics for Prometheus, through its own client library: `pip install 'zkconcurrent[prometheus]'`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

try:
    import prometheus_client.values
except ImportError as _missing:
    raise ImportError(
        "zkconcurrent.prometheus needs prometheus_client: pip install 'zkconcurrent[prometheus]'", name=_missing.name
    ) from _missing

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from .metrics import BUCKETS, INSTRUMENTS, Instrument, Recorder, Scope, Values

__all__ = ["instrument"]


def instrument(
    scope: Scope = None,
    *,
    registry: prometheus_client.CollectorRegistry | None = None,
) -> Callable[[], None]:
    """Export metrics of acquires, holds, losses and clients to Prometheus; return a function that stops it.

    It measures acquires that begin from now on. In prometheus_client's multiprocess mode, in which the variable
    PROMETHEUS_MULTIPROC_DIR is set, the metrics of clients and of the oldest hold are left out. The page on metrics has
    the table of names.

    Args:
        scope: a client or a namespace, to measure it alone; unless given, all clients of the process. Locks are named
            by their paths, with `*` for each number, hash and UUID; below a namespace, by their names in it.
        registry: where to register; unless given, prometheus_client's default registry.

    Returns:
        A function that stops the measurement. A second call changes nothing.

    Raises:
        TypeError: the scope is neither a client nor a namespace.
        ValueError: the registry or, in the multiprocess mode, the process has these metrics already.
        RuntimeError: PROMETHEUS_MULTIPROC_DIR was set after the import of prometheus_client.
    """
    collector, registry = _Collector(), registry or prometheus_client.REGISTRY
    try:
        # Register first, as the registry refuses a second registration.
        registry.register(collector)
    except ValueError as error:
        raise ValueError(
            "this registry has zkconcurrent's metrics already: call what the first instrument() has returned, or give "
            "another registry"
        ) from error
    try:
        collector.start(scope)
    except BaseException:
        registry.unregister(collector)
        raise

    def remove() -> None:
        """Stop the measurement. A second call changes nothing."""
        if collector.stop():
            registry.unregister(collector)

    return remove


class _Collector:
    """All metrics, as one collector: a registry has all of them, or none."""

    def __init__(self) -> None:
        # prometheus_client reads PROMETHEUS_MULTIPROC_DIR only when it is imported.
        self._several = prometheus_client.values.ValueClass is not prometheus_client.values.MutexValue
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ and not self._several:
            raise RuntimeError(
                "PROMETHEUS_MULTIPROC_DIR was set after the import of prometheus_client, which so writes no files: "
                "set it before that, best before the program starts"
            )
        # The multiprocess mode asks no collector, so waits and holds are recorded as they begin and end.
        live = "up-down counter" if self._several else None
        self._kept = {each: _metric_of(each) for each in INSTRUMENTS if not each.observed or each.kind == live}
        self._live: list[prometheus_client.Gauge] = []
        self._recorder: Recorder | None = None

    def start(self, scope: Scope) -> None:
        """Start recording.

        Raises:
            TypeError: see `instrument`.
            ValueError: another collector records, and both would write to the same files.
        """
        if self._several and _writing:
            raise ValueError(
                "this process has zkconcurrent's metrics already: in prometheus_client's multiprocess mode, all "
                "registries write to the same files; call what the first instrument() has returned"
            )
        self._recorder = Recorder(self._bind, scope, live=self._several)
        if self._several:
            _writing.append(self)

    def stop(self) -> bool:
        """Stop recording; return False if it had stopped already."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return False
        recorder.remove()
        for gauge in self._live:
            gauge.set(0)
        if self._several:
            _writing.remove(self)
        return True

    def describe(self) -> Iterable[Metric]:
        """Return the names, by which the registry finds duplicates."""
        families = {"counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
        return [
            families.get(each.kind, GaugeMetricFamily)(each.prometheus_name, each.description) for each in INSTRUMENTS
        ]

    def collect(self) -> Iterable[Metric]:
        """Return all metrics."""
        for metric in self._kept.values():
            yield from metric.collect()
        if self._several or self._recorder is None:
            return
        for instrument, found in self._recorder.observe().items():
            family = GaugeMetricFamily(
                instrument.prometheus_name, instrument.description, labels=instrument.prometheus_labels
            )
            for values, amount in found.items():
                family.add_metric(values, amount)
            yield family

    def _bind(self, instrument: Instrument, values: Values) -> Callable[[float], object]:
        metric = self._kept[instrument].labels(*values)
        if isinstance(metric, prometheus_client.Counter):
            return metric.inc
        if isinstance(metric, prometheus_client.Histogram):
            return metric.observe
        self._live.append(metric)
        return metric.set


# The collector that records in the multiprocess mode.
_writing: list[_Collector] = []


def _metric_of(row: Instrument) -> prometheus_client.Counter | prometheus_client.Histogram | prometheus_client.Gauge:
    described = row.prometheus_name, row.description, row.prometheus_labels
    if row.kind == "counter":
        return prometheus_client.Counter(*described, registry=None)
    if row.kind == "histogram":
        return prometheus_client.Histogram(*described, registry=None, buckets=BUCKETS)
    return prometheus_client.Gauge(*described, registry=None, multiprocess_mode="livesum")
