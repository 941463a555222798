"""An archive of the classes of a ZooKeeper server: with it, Java starts one with two thirds of the work.

The suite starts some eight hundred servers. Java writes such an archive as a process ends, if it was told to, and
ignores one that does not fit itself or the jars. `python -m tests.helpers.class_archive` makes it.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from tests.helpers.installations import real_installation
from zkconcurrent.testing import Ensemble, NoServerError, _server
from zkconcurrent.testing._java import find_java

_JVM_OPTIONS = _server._JVM_OPTIONS


def use_archive() -> None:
    """Have this process's servers read the archive, if there is one."""
    with suppress(NoServerError):  # the tests that need one will tell
        if _archive().exists():
            _server._JVM_OPTIONS = (*_JVM_OPTIONS, f"-XX:SharedArchiveFile={_archive()}")


def make_archive() -> None:
    """Write the archive, unless it is there: the leader of an ensemble has most classes that any server has."""
    archive = _archive()
    if archive.exists():
        return
    archive.parent.mkdir(exist_ok=True)
    written = archive.with_suffix(f".{os.getpid()}")
    _server._JVM_OPTIONS = (*_JVM_OPTIONS, f"-XX:ArchiveClassesAtExit={written}")
    try:
        with Ensemble(installation=real_installation()) as ensemble:
            leader = ensemble.leader()
            os.kill(leader.pid, signal.SIGTERM)  # the others are killed, and write none
            while leader.is_running:
                time.sleep(0.02)
    finally:
        _server._JVM_OPTIONS = _JVM_OPTIONS
    written.replace(archive)


def _archive() -> Path:
    """Return the archive's path; another Java, or another ZooKeeper, has another one."""
    what = (*real_installation().class_path, find_java().resolve())
    version = hashlib.sha256(b"\0".join(map(bytes, what))).hexdigest()[:16]
    return Path(__file__).parent / "__pycache__" / f"ZooKeeper-{version}.jsa"


if __name__ == "__main__":
    make_archive()
