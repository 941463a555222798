"""What each test of the simulation begins with."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def _frozen() -> None:
    """Have no collection of garbage look at what earlier tests have left: each run of tasks ends with one."""
    gc.collect()
    gc.freeze()
