"""The package itself: its names, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import zkconcurrent


@pytest.mark.parametrize("name", zkconcurrent.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """What `__all__` lists can be had, and is shown by `dir()`."""
    assert getattr(zkconcurrent, name) is not None
    assert name in dir(zkconcurrent)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A name that is not public is no attribute."""
    with pytest.raises(AttributeError, match="Mutex"):
        _ = zkconcurrent.Mutex


def test_kazoo_is_loaded_with_the_first_lock() -> None:
    """Importing the package imports nothing of kazoo; naming a lock does."""
    code = (
        "import sys, zkconcurrent; assert 'kazoo' not in sys.modules; zkconcurrent.Lock; assert 'kazoo' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
