"""CPython's own tests of mappings on a Dict, but for what a map of strings on a server can't have."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from test import mapping_tests

from zkconcurrent import Dict
from zkconcurrent.testing import Server


class Pickled:
    """A codec that keeps every type, as the tests compare with a dict."""

    def encode(self, item: Any, /) -> bytes:
        """Return it pickled."""
        return pickle.dumps(item)

    def decode(self, data: bytes, /) -> Any:
        """Return it."""
        return pickle.loads(data)


class TestDict(mapping_tests.BasicTestMappingProtocol):
    """The tests of the protocol, each object on a path of its own."""

    @pytest.fixture(autouse=True)
    def _client(self, zookeeper: Server, request: pytest.FixtureRequest) -> Iterator[None]:
        paths, kept = itertools.count(), []

        def make(*args: Any, **options: Any) -> Dict[Any]:
            made = Dict[Any](self.client, f"/mapping-{request.node.name}-{next(paths)}", codec=Pickled())
            kept.append(made)
            made.update(*args, **options)
            return made

        self.client = KazooClient(zookeeper.hosts)
        self.client.start()
        self.type2test = make
        yield
        for each in kept:
            each.destroy()
        self.client.stop()
        self.client.close()

    def _reference(self) -> dict[str, Any]:
        return {"1": "2", "key1": "value1", "key2": (1, 2, 3)}
