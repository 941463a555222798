"""Numbers and values that Java services on Curator share: the same bytes, and no change of either is lost."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.eventually import eventually
from tests.interop.conftest import ConnectJava
from zkconcurrent import TEXT, AtomicInteger, AtomicLong, SharedValue

BOTH = pytest.mark.parametrize(
    ("kind", "java_kind", "largest"), [(AtomicLong, "long", 2**63 - 1), (AtomicInteger, "integer", 2**31 - 1)]
)


@BOTH
def test_one_number(
    kind: Any, java_kind: str, largest: int, client: KazooClient, connect_java: ConnectJava, zk_path: str
) -> None:
    """Each side sees the number that the other sets, adds or compares, whichever came first."""
    java = connect_java()
    number = kind(client, zk_path)
    assert java.call(f"{java_kind}.get", zk_path).result(20) == "0"
    assert java.call(f"{java_kind}.add", zk_path, -7, 1).result(20) == "-7"
    assert number.get() == -7
    assert number.add(10) == 3
    assert java.call(f"{java_kind}.get", zk_path).result(20) == "3"
    assert java.call(f"{java_kind}.compare", zk_path, 3, largest).result(20) == "true"
    assert java.call(f"{java_kind}.compare", zk_path, 3, 4).result(20) == "false"
    with pytest.raises(OverflowError):
        number.add()
    assert number.compare_and_set(largest, -largest - 1)
    assert java.call(f"{java_kind}.get", zk_path).result(20) == str(-largest - 1)
    java.call(f"{java_kind}.set", zk_path, 5).result(20)
    assert number.get_and_add() == 5


@BOTH
def test_both_add(
    kind: Any,
    java_kind: str,
    largest: int,
    client: KazooClient,
    connect: Connect,
    connect_java: ConnectJava,
    zk_path: str,
    in_thread: InThread,
) -> None:
    """The sum is exact while threads of both add, with conflicts that queue in one lock."""
    java, other, far = connect_java(), connect_java(), connect()
    kind(client, zk_path).add()  # before Java makes the lock: its parents would be containers
    adding: list[Any] = [each.call(f"{java_kind}.add", zk_path, 1, 40) for each in (java, other)]
    adding += [
        in_thread(lambda each=each: [kind(each, zk_path).add(1000) for _ in range(30)])
        for each in (client, client, far)
    ]
    for each in adding:
        each.result(60)
    assert kind(client, zk_path).get() == 1 + 2 * 40 + 3 * 30 * 1000
    assert largest > 0


def test_one_value(client: KazooClient, connect_java: ConnectJava, zk_path: str, in_thread: InThread) -> None:
    """Each side sees, and is woken by, the value that the other sets; a comparison fails if the other was faster."""
    java = connect_java()
    assert java.call("value.get", zk_path).result(20) == "seed"
    shared = SharedValue(client, zk_path, "first", codec=TEXT)
    seen = shared.get()
    assert seen == ("seed", 0)
    waiting = in_thread(shared.wait_for, lambda text: text == "java's")
    java.call("value.set", zk_path, "java's").result(20)
    assert waiting.result(20) is True
    assert not shared.compare_and_set(seen, "late")
    assert shared.update(str.upper) == "JAVA'S"
    eventually(lambda: java.call("value.get", zk_path).result(20) == "JAVA'S")
    assert java.call("value.try", zk_path, "tried").result(20) == "tried" or shared.get().value == "tried"
    assert shared.compare_and_set(shared.get(), "ours")
    eventually(lambda: java.call("value.get", zk_path).result(20) == "ours")


def test_a_shared_count(client: KazooClient, connect_java: ConnectJava, zk_path: str) -> None:
    """An AtomicInteger has the bytes of Curator's SharedCount."""
    java = connect_java()
    assert java.call("count.get", zk_path).result(20) == "5"
    number = AtomicInteger(client, zk_path)
    assert number.add(-12) == -7
    eventually(lambda: java.call("count.get", zk_path).result(20) == "-7")
    java.call("count.set", zk_path, 40).result(20)
    assert number.add() == 41
