"""Several ensembles as one: which of them has a name, and the record that reveals a client with another list.

The first part of a name is hashed with the name of each ensemble, and the ensemble with the highest hash has the name
(rendezvous hashing). So neither the hosts of an ensemble nor the order in which a program lists the ensembles matters.

Each ensemble has a record at the base path. A process may use its list only if it has found, or written, the same
record on each ensemble, and no process changes a record. So two processes that work and share an ensemble have the same
list. All processes write in the order of the ensembles' names: if two begin at once, the second to reach a common
ensemble is refused. The records that it has already written stay, as other processes with its list may have found them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256

from .._errors import ClientError
from .._protocol import operations as op
from .._protocol.operations import Recipe
from .nodes import make

RECORD = "_ensembles"
"""The name of the record, below the base path."""


def place(names: Iterable[str], part: str) -> str:
    """Return the name of the ensemble that has the paths with this first part."""
    return max(names, key=lambda name: sha256(f"{name}/{part}".encode()).digest())


def first_part(base: str, path: str) -> str:
    """Return the first part of a path below the base, which decides its place."""
    return path[len(base.rstrip("/")) + 1 :].partition("/")[0]


def record(name: str, names: Iterable[str]) -> bytes:
    """Return the data of the record on an ensemble, given its name and the names of all ensembles."""
    return json.dumps({"name": name, "ensembles": sorted(names)}).encode()


def has_record(path: str, data: bytes) -> Recipe[bool]:
    """Return whether the record is there.

    Raises:
        ClientError: there is another record.
    """
    _, node = yield op.Sync(path), op.Get(path)
    if node is not None and node.data != data:
        raise ClientError(
            path,
            f"this process gives {data.decode()}, but the record on the ensemble is {node.data[:1000]!r}: give all "
            "processes the same names for the same ensembles; to change them, stop all processes and delete this node "
            "on each ensemble",
        )
    return node is not None


def write_record(path: str, data: bytes) -> Recipe[None]:
    """Write the record, unless it is there; errors as `has_record`."""
    while not (yield from has_record(path, data)):
        yield from make(path, data)
