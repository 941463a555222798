"""Metrics and traces for OpenTelemetry, through its API alone: `pip install 'zkconcurrent[otel]'`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

try:
    from opentelemetry import metrics, trace
except ImportError as _missing:
    raise ImportError(
        "zkconcurrent.otel needs OpenTelemetry's API: pip install 'zkconcurrent[otel]'", name=_missing.name
    ) from _missing

from . import DeadlockVictim, Failed, __version__
from .metrics import BUCKETS, INSTRUMENTS, Instrument, Recorder, Scope, Values

__all__ = ["instrument"]

NAME = "zkconcurrent"
ACQUIRE = "zkconcurrent.acquire"
# A wait that lasted at least this long is a span of its own.
LONG = 0.001  # seconds


def instrument(
    scope: Scope = None,
    *,
    meter_provider: metrics.MeterProvider | None = None,
    tracer_provider: trace.TracerProvider | None = None,
) -> Callable[[], None]:
    """Give OpenTelemetry metrics (acquires, holds, losses, clients) and traces (acquires); return a stop function.

    It measures acquires that begin from now on. An acquire that lasted 1 ms or longer is a span below the current one,
    `zkconcurrent.acquire`; a shorter one is an event of the current span. The page on metrics has the table of names.

    Args:
        scope: a client or a namespace, to measure it alone; unless given, all clients of the process. Locks are named
            by their paths, with `*` for each number, hash and UUID; below a namespace, by their names in it.
        meter_provider: the provider of meters; unless given, the program's provider, which may be set later.
        tracer_provider: the provider of tracers; unless given, the program's provider, which may be set later.

    Returns:
        A function that stops the measurement. A second call changes nothing.

    Raises:
        TypeError: the scope is neither a client nor a namespace.
        ValueError: the meter provider has these metrics already.
    """
    made = _made_for(meter_provider)
    if any(each.recorder is not None for each in made):
        raise ValueError(
            "this meter provider has zkconcurrent's metrics already: call what the first instrument() has returned, or "
            "give another meter provider"
        )
    if not made:
        made = [_Instruments(metrics.get_meter(NAME, __version__, meter_provider))]
        _instruments[_Program if meter_provider is None else meter_provider] = made[0]
    instruments = made[0]
    tracer = trace.get_tracer(NAME, __version__, tracer_provider)
    recorder = instruments.recorder = Recorder(instruments.bind, scope, on_outcome=partial(_trace, tracer))

    def remove() -> None:
        """Stop the measurement. A second call changes nothing."""
        recorder.remove()
        if instruments.recorder is recorder:
            instruments.recorder = None

    return remove


class _Program:
    """Stands for the program's meter provider, whichever that is."""


class _Instruments:
    """The instruments of one meter provider. No provider forgets an instrument, so they are made once.

    Attributes:
        recorder: the recorder; None while nothing is to be measured.
    """

    def __init__(self, meter: metrics.Meter) -> None:
        self.recorder: Recorder | None = None
        self._records: dict[Instrument, Callable[..., object]] = {}
        for row in INSTRUMENTS:
            described = row.name, row.unit, row.description
            if row.kind == "counter":
                self._records[row] = meter.create_counter(*described).add
            elif row.kind == "histogram":
                made = meter.create_histogram(*described, explicit_bucket_boundaries_advisory=BUCKETS)
                self._records[row] = made.record
            elif row.kind == "gauge":
                meter.create_observable_gauge(row.name, [partial(self._observe, row)], *described[1:])
            else:
                meter.create_observable_up_down_counter(row.name, [partial(self._observe, row)], *described[1:])

    def bind(self, row: Instrument, values: Values) -> Callable[[float], object]:
        """Return a function that records an amount."""
        return partial(self._records[row], attributes=row.attributes_of(values))

    def _observe(self, row: Instrument, _: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        found = {} if self.recorder is None else self.recorder.observe()[row]
        return [metrics.Observation(amount, row.attributes_of(values)) for values, amount in found.items()]


_instruments: weakref.WeakKeyDictionary[object, _Instruments] = weakref.WeakKeyDictionary()


def _made_for(meter_provider: metrics.MeterProvider | None) -> list[_Instruments]:
    """Return the instruments that a meter provider has; None and the program's own provider mean the same."""
    program = metrics.get_meter_provider()
    keys: tuple[object, ...] = (_Program, program) if meter_provider in (None, program) else (meter_provider,)
    return [made for made in map(_instruments.get, keys) if made is not None]


def _trace(tracer: trace.Tracer, event: Any, recorded: dict[str, str]) -> None:
    """Add the outcome of an acquire to the trace."""
    span = trace.get_current_span()
    if event.waited < LONG and not span.is_recording():
        return
    attributes: dict[str, str | int] = {**recorded, "zkconcurrent.path": event.path}
    if event.token:
        attributes["zkconcurrent.token"] = event.token
    if event.waited < LONG:
        span.add_event(ACQUIRE, attributes)
        return
    end = int(event.date.timestamp() * 1e9)
    span = tracer.start_span(ACQUIRE, attributes=attributes, start_time=end - int(event.waited * 1e9))
    if isinstance(event, DeadlockVictim | Failed):
        span.record_exception(event.error, timestamp=end)
        span.set_status(trace.StatusCode.ERROR, str(event.error))
    span.end(end)
