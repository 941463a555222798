"""kazoo's recipes, which a client of `connect` refuses: they exclude nothing that the library's primitives hold.

`KazooClient.__init__` makes them attributes of the client. `DataWatch` and `ChildrenWatch` make no nodes, and stay.
"""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from kazoo.client import KazooClient

# Each of kazoo's names, and what to use in its place.
_RECIPES = {
    "Barrier": "Event",
    "Counter": "AtomicLong",
    "DoubleBarrier": "DoubleBarrier",
    "Election": "Election",
    "Lock": "Lock or RLock",
    "LockingQueue": "Queue",
    "MultiNonBlockingLease": "Semaphore",
    "NonBlockingLease": "DetachedLock",
    "Party": "Group",
    "Queue": "Queue",
    "ReadLock": "ReadWriteLock",
    "Semaphore": "Semaphore",
    "SetPartitioner": "Group",
    "ShallowParty": "Group",
    "WriteLock": "ReadWriteLock",
}


def refuse_recipes(client: KazooClient) -> None:
    """Have a client refuse kazoo's recipes."""
    for name in _RECIPES:
        setattr(client, name, partial(_refuse_recipe, name))


def _refuse_recipe(name: str, *_: object, **__: object) -> NoReturn:
    raise RuntimeError(
        f"{name} of kazoo and the primitives of zkconcurrent do not exclude each other: use "
        f"zkconcurrent.{_RECIPES[name]}, or open the client with connect(..., kazoo_recipes=True)"
    )
