"""The data of the nodes about their maker."""

from __future__ import annotations

import json
import threading

import pytest

from tests.conftest import InThread
from zkconcurrent._runtime.identity import of_thread
from zkconcurrent._threads.base.node_data import node_data


@pytest.mark.fault(47)
def test_no_lock_of_threadings_is_taken(in_thread: InThread) -> None:
    """A handler that strikes there may stop the client, whose threads take that lock as they end."""
    with threading._active_limbo_lock:  # type: ignore[attr-defined]
        data = node_data(of_thread())
    assert json.loads(data)["thread"] == threading.current_thread().name
    assert json.loads(in_thread(lambda: node_data(of_thread())).result(10))["thread"] != json.loads(data)["thread"]


def test_a_thread_that_threading_does_not_know() -> None:
    """Its number is its name."""
    assert json.loads(node_data(-7))["thread"]
