"""This process: its id, the number of forks since the import, and the random names and choices that it makes.

A program may seed `random`, and a test may patch `uuid`, `random` and `os`: none of that changes what was bound when
the library was imported. A forked child makes other names than its parent and its siblings.
"""

from __future__ import annotations

import os
from os import getpid as getpid
from os import urandom
from random import SystemRandom
from uuid import UUID

choices = SystemRandom()
"""The generator for all random choices."""

forks = 0
"""How many forks led from the process of the import to this one. An object that notes it can detect a later fork."""


def new_uuid() -> str:
    """Return a random UUID, as text."""
    return str(UUID(bytes=urandom(16), version=4))


def _after_fork_in_child() -> None:
    global forks
    forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
