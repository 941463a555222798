"""The simulation's coverage, at the end of the test's output; also where the tests run in several processes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

_PROPERTY = "simulated"
_lines: list[str] = []


@pytest.fixture
def simulated(record_property: Callable[[str, object], None]) -> Iterator[list[str]]:
    """Lines for the summary."""
    lines: list[str] = []
    yield lines
    for line in lines:
        record_property(_PROPERTY, line)


@pytest.fixture(autouse=True)
def _frozen() -> None:
    """Have no collection of garbage look at what earlier tests have left: each run of tasks ends with one."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect them, in the process that prints."""
    if report.when == "teardown":
        _lines.extend(str(value) for name, value in report.user_properties if name == _PROPERTY)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print them."""
    if _lines:
        terminalreporter.section("simulation")
        for line in _lines:
            terminalreporter.line(line)
