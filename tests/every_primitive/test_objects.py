"""The object itself: to make one, and its repr, send nothing; a client of the program's own is not pickled."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.every_primitive import class_of, each
from tests.helpers.kinds import make


@each()
def test_it_sends_nothing_and_stays(of: Any, kind: str, zk: KazooClient, zk_path: str) -> None:
    """Nothing is at the path after that; the error of a pickle names the path, and says what to do instead."""
    made = make(of, class_of(kind), zk, zk_path)
    assert class_of(kind) in repr(made)
    with pytest.raises(TypeError, match=f"cannot pickle .*{zk_path}.*open a client in the other process"):
        pickle.dumps(made)
    assert zk.exists(zk_path) is None
