"""The fixtures, as a user's tests see them: found by pytest through the package's entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def run_pytest(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tests above in a process of their own."""
    (folder / "test_users.py").write_text(TESTS)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_fixtures(tmp_path: Path) -> None:
    """Tests that ask for the fixtures get a server, a client and a path."""
    ended = run_pytest(tmp_path)
    assert "4 passed" in ended.stdout, ended.stdout


def test_no_server(tmp_path: Path) -> None:
    """Without a server a test that needs one fails with the reason; it is not skipped, and others run."""
    ended = run_pytest(tmp_path, ZOOKEEPER_HOME=str(tmp_path), ZKCONCURRENT_SERVER="home")
    assert "1 passed, 3 errors" in ended.stdout
    assert f"NoServerError: ZOOKEEPER_HOME is '{tmp_path}'" in ended.stdout


def test_costs_nothing_until_used() -> None:
    """Every test run loads the plugin where the package is installed, so that imports neither kazoo nor the locks."""
    program = "import sys, zkconcurrent.testing.plugin; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "kazoo" not in modules
    assert "zkconcurrent.testing._server" in modules
    assert not [name for name in modules if name.startswith("zkconcurrent._") and name != "zkconcurrent._version"]
