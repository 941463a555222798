"""Celery's broker in a folder, with messages that are there as a whole.

kombu opens a message's file before it writes the message, and a worker that finds the empty file ends.
"""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from typing import Any

from kombu.transport import filesystem
from kombu.utils.json import dumps


def put_whole_messages() -> None:
    """Have this process put its messages at once."""
    filesystem.Channel._put = _put


def _put(channel: Any, queue: str, payload: object, **_: object) -> None:
    folder = channel.data_folder_out
    # The name of the file has no end that a worker looks for.
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
        file.write(dumps(payload))
    os.replace(file.name, os.path.join(folder, f"{round(time.monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"))
