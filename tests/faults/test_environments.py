"""A client that was started before the library first saw it, under gevent, eventlet, and what is unknown."""

from __future__ import annotations

import pytest

from tests.helpers.processes import run_python
from zkconcurrent.testing import Server


def run(zookeeper: Server, zk_path: str, *how: str) -> str:
    """Return what the program prints."""
    done = run_python("-W", "ignore", "-m", "tests.faults.environments", zookeeper.hosts, zk_path, *how, timeout=120)
    return done.stdout


@pytest.mark.parametrize(
    ("patched", "handler"),
    [
        ("gevent", "threads"),
        ("gevent late", "threads"),
        ("gevent late", "gevent"),
        ("eventlet", "threads"),
        ("eventlet", "eventlet"),
        ("eventlet late", "eventlet"),
        ("unpatched", "eventlet"),
    ],
)
def test_greenlets_in_the_place_of_threads(patched: str, handler: str, zookeeper: Server, zk_path: str) -> None:
    """Faults 244, 497: the session timeout is found, a free lock is acquired, and waits let the other greenlets run.

    Nothing lists the objects of the process: a real thread that is making a tuple then fails with a SystemError.
    """
    assert "all is well" in run(zookeeper, zk_path, patched, handler)


@pytest.mark.parametrize(("patched", "handler"), [("gevent other hub", "threads"), ("other hub", "gevent")])
def test_an_environment_that_is_not_known(patched: str, handler: str, zookeeper: Server, zk_path: str) -> None:
    """Faults 244, 498: each call raises ClientError, which says what to do, within a third of the session timeout."""
    said = run(zookeeper, zk_path, patched, handler)
    assert said.count("refused: ") == 2, said
    assert "start a client in this thread" in said
