"""What the simulation covered, at the end of the test's output."""

from __future__ import annotations

import pytest

_simulated: list[str] = []


@pytest.fixture
def simulated() -> list[str]:
    """Lines for the summary."""
    return _simulated


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print them."""
    if _simulated:
        terminalreporter.section("simulation")
        for line in _simulated:
            terminalreporter.line(line)
