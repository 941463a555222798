"""Several ensembles as one: where a name is, and processes that begin at the same time with different lists."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from zkconcurrent import ClientError
from zkconcurrent._protocol import operations as op
from zkconcurrent._recipes.ensembles import first_part, has_record, place, record, write_record


def test_a_place_never_changes() -> None:
    """The place of a path is the same in every version of the library: another one would be another lock."""
    names = ["zk1:2181#3f", "zk2:2181#70", "zk3:2181#a9"]
    assert [place(names, part)[2] for part in ("7", "cart", "stock", "ä", "")] == ["1", "3", "2", "3", "2"]
    assert place(reversed(names), "cart") == place(names, "cart")
    assert first_part("/app", "/app/cart/lock") == first_part("/", "/cart") == "cart"


def test_one_more_ensemble_takes_its_share() -> None:
    """The ensembles have equal shares, and one more takes its own from each; no path moves between the others."""
    names = [f"zk{n}" for n in range(4)]
    parts = [str(n) for n in range(4000)]
    before = {part: place(names, part) for part in parts}
    assert all(900 < each < 1100 for each in Counter(before.values()).values())
    after = {part: place((*names, "new"), part) for part in parts}
    moved = [part for part in parts if before[part] != after[part]]
    assert {after[part] for part in moved} == {"new"}
    assert 720 < len(moved) < 880
    assert {before[part] for part in moved} == set(names)


def begin(nodes: dict[str, bytes], names: str, choose: random.Random) -> Iterator[bool]:
    """Make a namespace of the ensembles with these names, a request at a time; yield at last whether that works."""

    def answer(step: Any, name: str) -> object:
        if isinstance(step, op.CreatePersistent):
            # The reply may be lost, and the node made by another one.
            return nodes.setdefault(name, step.data) is step.data and choose.random() < 0.8
        _, get = step
        assert isinstance(get, op.Get)
        return None, op.Node(nodes[name], 0, 0, 0, 0) if name in nodes else None

    for step in (has_record, write_record):
        for name in names:
            recipe = step("/app/_ensembles", record(name, names))
            reply: object = None
            while True:
                yield False
                try:
                    request = recipe.send(reply)
                except StopIteration:
                    break
                except ClientError:
                    return
                reply = answer(request, name)
    yield True


@pytest.mark.fault(318)
@pytest.mark.parametrize("lists", ["ab ac", "ab bc ac", "ab a abc", "ab ab b", "ab c"])
def test_processes_that_begin_at_once(lists: str) -> None:
    """No two processes work with different lists that share an ensemble, and at least one works."""
    for seed in range(1000):
        choose = random.Random(seed)
        nodes: dict[str, bytes] = {}
        running = {begin(nodes, names, choose): names for names in lists.split()}
        working: list[str] = []
        while running:
            process = choose.choice(list(running))
            works = next(process, None)
            if works:
                working.append(running[process])
            if works is not False:
                del running[process]
        assert working
        assert all(one == other or not set(one) & set(other) for one in working for other in working)
