"""`once_per` on a real ZooKeeper: at most one start in each period, whatever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import children, queued
from tests.helpers.eventually import eventually
from tests.helpers.processes import Spawn, line_from, spawning, state_of, tell
from tests.helpers.proxy import Proxy
from zkconcurrent import ForeignNodeError, LastRun, LockLostError, RefusedError, RLock, once_per
from zkconcurrent.testing import Server

SESSION = 1.5
HOUR = 3300.0
spawn = spawning("tests.integration.once_party", SESSION)


def finish(process: subprocess.Popen[str]) -> list[str]:
    """Close a party's input, and return all that it says up to its end."""
    return process.communicate()[0].split()


@pytest.mark.long
@pytest.mark.parametrize("stops", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize("stage", ["waiting", "marking", "marked", "working"])
def test_no_period_has_two_starts(zk: KazooClient, zk_path: str, spawn: Spawn, stage: str, stops: bool) -> None:
    """Of three processes one is killed at a stage of its call, or stopped until its session is over: one start.

    There is none if the process had written its mark. The period is shorter than the stop: a call counts from when it
    was made, not from when it queued anew.
    """
    period = 2 * SESSION if stops else HOUR
    victim, *others = [spawn(period, stage), spawn(period, "-"), spawn(period, "-")]
    assert [line_from(each) for each in (victim, *others)] == ["ready"] * 3
    lock = RLock(zk, zk_path)
    with lock:
        tell(victim)
        eventually(queued(zk, zk_path, 2))
        for each in others:
            tell(each)
        eventually(queued(zk, zk_path, 4))
        if stage == "waiting":
            hit(victim, stops, until=queued(zk, zk_path, 3))
    started = stage == "working" and line_from(victim) == "started"
    if stage != "waiting":
        assert line_from(victim) == stage
        hit(victim, stops, until=lambda: True)
    said = [line for each in others for line in finish(each)]
    if stops:
        # The others may have come and gone by now.
        eventually(lambda: not children(zk, zk_path))
        victim.send_signal(signal.SIGCONT)
        if stage != "waiting":
            tell(victim)
        said += finish(victim)
    assert said.count("started") + started == (stage != "marked")


def hit(process: subprocess.Popen[str], stops: bool, until: Callable[[], bool]) -> None:
    """Kill a process, or stop it; wait until its session is over."""
    process.send_signal(signal.SIGSTOP if stops else signal.SIGKILL)
    eventually(lambda: state_of(process.pid) in "TZX")
    eventually(until)
