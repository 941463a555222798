"""Backups of a server's data: one is made, and later put in the place of what the server has."""

from __future__ import annotations

import shutil
from pathlib import Path

from zkconcurrent.testing import Server


def back_up(server: Server, folder: Path) -> None:
    """Copy the data into a new folder; the server is killed, and starts again."""
    server.kill()
    shutil.copytree(_data(server), folder)
    server.start()


def restore(server: Server, folder: Path) -> None:
    """Put a backup in the place of the data; the server is killed, and starts again."""
    server.kill()
    shutil.rmtree(_data(server))
    shutil.copytree(folder, _data(server))
    server.start()


def _data(server: Server) -> Path:
    assert server._guard is not None
    return server._guard.folder / "version-2"
