"""The data of a node, as its creator wrote them; any program may have written anything.

The data of a lock's nodes are JSON, which operators read and a search for a deadlock follows; `node_data` writes it. A
field that is missing, or of another type, is None or empty.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from .operations import MALFORMED
from .ticket import REVOKED

_LONGEST = 1e12  # seconds
_LONGEST_NAME = 300  # characters
# The id that the library gives a candidate if its program gives none; the node has no other data.
_CANDIDATE = re.compile(rb"(\d{1,10})@(.+)#[0-9a-f]{8}")


class NodeInfo(NamedTuple):
    """The fields of one node's data.

    Attributes:
        host: the host's name; if the data are not ours, their whole text.
        pid: the process id; None shows that the data are not ours.
        thread: the thread's name.
        owner: the owner's name in a `DetachedLock`.
        by: the thread or task.
        timeout: how many seconds its owner waits at most.
        holds: what its owner held when the owner queued, each hold as a full path and the unique part of a node's name.
        label: the program's name for the lock, or for its use of the lock.
        ends: whether a deadlock ends its owner's wait.
    """

    host: str | None = None
    pid: int | None = None
    thread: str | None = None
    owner: str | None = None
    by: str | None = None
    timeout: float | None = None
    holds: tuple[tuple[str, str], ...] = ()
    label: str | None = None
    ends: bool = False

    @classmethod
    def parse(cls, data: bytes) -> NodeInfo:
        """Parse a node's data."""
        try:
            fields = json.loads(data)
            return cls(
                _typed(fields["host"], str),
                _typed(fields["pid"], int),
                _typed(fields["thread"], str),
                _typed(fields.get("owner"), str),
                _typed(fields.get("by"), str),
                _duration(fields.get("timeout")),
                _pairs(fields.get("holds", ())),
                _typed(fields.get("label"), str),
                fields.get("ends") == 1,
            )
        except MALFORMED:
            return cls(None if data == REVOKED else data.decode("utf-8", "replace") or None)

    def whole_name(self, otherwise: str) -> str:
        """Return the words with which messages name the creator."""
        if self.pid is None:
            name = repr(self.host or otherwise)
        else:
            label = "" if self.label is None else f" (label {self.label!r})"
            thread = "" if self.thread is None else f"thread {self.thread!r} of "
            name = f"{thread}process {self.pid} on host {self.host!r}{label}"
        # Another program's text may have a million characters.
        return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def origin_of(candidate: bytes) -> tuple[str | None, int | None]:
    """Return the host and process id in a candidate's data; None for both if the library has not made the id."""
    found = _CANDIDATE.fullmatch(candidate)
    return (None, None) if found is None else (found[2].decode("utf-8", "replace"), int(found[1]))


def _typed(value: object, *kinds: type) -> Any:
    return value if type(value) in kinds else None


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple((str(path), str(node)) for path, node in value)


def _duration(value: object) -> float | None:
    """Return a number of seconds; None for any other value: JSON may hold infinity, or a thousand digits."""
    seconds: float | None = _typed(value, float, int)
    return seconds if seconds is not None and 0 <= seconds < _LONGEST else None
