"""The `__module__` of a public class: the package that users import it from, not the file that it is in.

Tracebacks and reprs show that name. A pickle contains it, too, so a version of the library that has the class in
another file can still read the pickle.
"""

from __future__ import annotations

import typing
from inspect import get_annotations
from types import TracebackType
from typing import TYPE_CHECKING, ForwardRef, TypeAlias, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self as Self
else:
    # Python 3.10 has no `Self`, but the annotations that name it must resolve there, too.
    Self = getattr(typing, "Self", TypeVar("Self"))

T = TypeVar("T")
# The types of the arguments of `__exit__`, which describe the error that has ended the block.
ErrorKind: TypeAlias = type[BaseException] | None
Traceback: TypeAlias = TracebackType | None


def public(made: T) -> T:
    """Have a class or function of this library name the public package as its module."""
    package, private, _ = (home := made.__module__).partition("._")
    if private and home.startswith("zkconcurrent."):
        if isinstance(made, type) and (own := get_annotations(made)):
            made.__annotations__ = {name: _read_in(home, each) for name, each in own.items()}
        made.__module__ = package
    return made


class Named:
    """A base class that makes the library's subclasses name the public package as their module; see `public`."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        public(cls)


def _read_in(home: str, annotation: object) -> object:
    """Return an annotation whose names are looked up in the module `home`.

    `typing.get_type_hints`, pydantic and others would look for them in the module that the class names.
    """
    text = getattr(annotation, "__forward_arg__", annotation)
    return ForwardRef(text, is_argument=False, module=home, is_class=True) if isinstance(text, str) else annotation
