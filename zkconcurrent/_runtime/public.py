"""The module that a public class names: the package that users import it from, not the file that it is in.

Tracebacks and reprs show that name. A pickle contains it, so another version that keeps the class elsewhere can still
read the pickle.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def public(made: T) -> T:
    """Have a class or function of this library name the public package as its module."""
    if made.__module__.startswith("zkconcurrent."):
        made.__module__ = made.__module__.partition("._")[0]
    return made
