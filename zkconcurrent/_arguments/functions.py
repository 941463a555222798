"""Functions that a program passes: the library never awaits what they return, and a coroutine would count as true."""

from __future__ import annotations

from inspect import isasyncgenfunction, iscoroutinefunction


def check_callable(name: str, func: object, instead: str = "give a plain function") -> None:
    """Refuse an argument that can't be called, or that only makes a coroutine or an async generator.

    Raises:
        TypeError: it can't be called, or is a coroutine function.
    """
    if not callable(func):
        raise TypeError(f"{name} must be callable, not {type(func).__name__}")
    if any(is_async(each) for is_async in (iscoroutinefunction, isasyncgenfunction) for each in (func, func.__call__)):
        raise TypeError(f"{name} must not be a coroutine function, as nothing would await it: {instead}")


def check_callbacks(**callbacks: object) -> None:
    """Check each callback that is not None, such as an `on_lost`, with `check_callable`."""
    for name, callback in callbacks.items():
        if callback is not None:
            check_callable(name, callback)
