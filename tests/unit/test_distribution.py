"""How the tests are shared among processes."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("of this file")
def test_groups_stay_together(request: pytest.FixtureRequest) -> None:
    """One process runs all tests of a group, which share a fixture: pytest-xdist finds the group in a test's name."""
    if "PYTEST_XDIST_WORKER" in os.environ and request.config.option.loadgroup:
        assert request.node.nodeid.endswith("@of this file"), "pytest and pytest-xdist do not fit together"
