"""The names in error messages: those of the classes that the user sees, in the package that she uses."""

from __future__ import annotations

import inspect
import re
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from zkconcurrent import aio

CLASSES = [
    pytest.param(each, name, id=f"{module.__name__}.{name}")
    for module in (zkconcurrent, aio)
    for name in module.__all__
    if inspect.isclass(each := getattr(module, name))
    and not issubclass(each, BaseException)
    and not getattr(each, "_is_protocol", False)
]
INTERNAL = ("Acquirable", "LockBase", "Primitive", "PrimitiveTwin", "Twin", "QueueBase", "MapBase", "Several")


@pytest.mark.parametrize(("kind", "name"), CLASSES)
def test_missing_arguments(kind: Any, name: str) -> None:
    """Without arguments, or with too many, each class raises an error that has its own name and no base class's."""
    for arguments in ((), (None,) * 20):
        try:
            kind(*arguments)
        except TypeError as error:
            said = str(error)
            assert not set(re.findall(r"\w+", said)) & set(INTERNAL), said
            if "__init__" in said and name not in ("LocalNamespace", "SharedNamespace"):
                assert f"{kind.__name__}.__init__()" in said, said  # an alias has another name


@pytest.mark.parametrize("module", [zkconcurrent, aio], ids=lambda module: module.__name__)
def test_an_object_of_the_other_package(module: ModuleType) -> None:
    """A lock of the other package, or of the standard library, is named with its package."""
    client = KazooClient()
    other = aio if module is zkconcurrent else zkconcurrent
    for wrong, called in (
        (other.Lock(client, "/lock"), f"{other.__name__}.Lock"),
        (other.RLock(client, "/rlock"), f"{other.__name__}.RLock"),
        (threading.Lock(), "_thread.lock"),
        (7, "int"),
    ):
        for use in (
            lambda wrong=wrong: module.Condition(client, "/condition", wrong),
            lambda wrong=wrong: module.MultiLock([wrong]),
            lambda wrong=wrong: module.QuorumLock([wrong]),
        ):
            with pytest.raises(TypeError, match=f"not {re.escape(called)}$"):
                use()


def test_no_message_points_to_a_page_that_no_wheel_has() -> None:
    """The package names no file of `docs`: it is not installed."""
    package = Path(zkconcurrent.__file__).parent
    found = [path for path in package.rglob("*.py") if "docs/" in path.read_text()]
    assert not found
