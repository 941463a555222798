"""The paths of one client's primitives: one primitive for each path, and none below another."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from .._arguments.paths import ancestors
from .._protocol.ticket import Ticket

PathStateT = TypeVar("PathStateT", bound=Any)


class Kept:
    """Kept alive by all states below one path, and by whatever else needs their nodes."""


class PathDirectory(weakref.WeakValueDictionary[str, Any]):
    """The state of each path that has a live primitive, by path.

    All methods but `keep`, `states` and `is_directory` are called with the session's lock held. Each state has a
    `kind`, the kind of primitive, and a `part`, the name of a node below its path that may be a primitive of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        # How many primitives lie below each path.
        self._interior: dict[str, int] = {}
        self._kept: weakref.WeakValueDictionary[str, Kept] = weakref.WeakValueDictionary()

    def open(self, path: str, kind: str, make: Callable[[], PathStateT], part: str = "") -> PathStateT:
        """Return the state of `path`, the same for every object made for it.

        Args:
            path: the primitive's path.
            kind: the kind of primitive.
            make: makes the state, for the first object.
            part: the name of a node below the path that may be a primitive of its own.

        Raises:
            ValueError: another kind of primitive lives there, or a primitive lives above or below it.
        """
        state = self.get(path)
        if state is not None:
            return _checked(state, path, kind)  # type: ignore[no-any-return]
        own = f"{path}/{part}"
        if path in self._interior and any(each.startswith(f"{path}/") and each != own for each in self._paths()):
            raise ValueError(
                f"a primitive of this client lives below {path!r}: use another path, as paths must not nest"
            )
        for above in ancestors(path):
            other = self.get(above)
            if other is not None and path != f"{above}/{other.part}":
                raise ValueError(
                    f"{path!r} lies below {above!r}, which is a primitive: use another path, as paths must not nest"
                )
        state = make()
        state.part = part
        if self._kept:
            state.kept = self._kept.get(path.split("/", 2)[1])
        # A signal handler may have opened the path meanwhile.
        if (made := self.get(path)) is not None:
            return _checked(made, path, kind)  # type: ignore[no-any-return]
        self[path] = state
        for above in ancestors(path):
            self._interior[above] = self._interior.get(above, 0) + 1
        return state

    def keep(self, root: str, then: Callable[[str], object]) -> Kept:
        """Return an object that the states of all paths below a root keep alive; once it is gone, `then` is called."""
        kept = self._kept[root[1:]] = Kept()
        weakref.finalize(kept, self._let_go, self._kept, root, then).atexit = False
        return kept

    @staticmethod
    def _let_go(kept: weakref.WeakValueDictionary[str, Kept], root: str, then: Callable[[str], object]) -> None:
        # R4: a signal handler may have called `keep` for the same root again.
        if root[1:] not in kept:
            then(root)

    def closed(self, path: str) -> None:
        """Note that the primitive of a path is gone."""
        for above in ancestors(path):
            self._interior[above] = self._interior.get(above, 1) - 1
            if self._interior[above] <= 0:
                self._interior.pop(above, None)

    def states(self) -> list[Any]:
        """Return the states of all paths."""
        return [state for ref in self.valuerefs() if (state := ref()) is not None]

    def _paths(self) -> list[str]:
        # R4: `valuerefs` copies the references in one step; `keys` and `values` are loops, which a handler may
        # interrupt.
        return [ref.key for ref in self.valuerefs()]

    def tell_asked(self, ticket: Ticket) -> bool:
        """Report that a client asks the holder with this ticket to let go; see `PathState.tell_asked`."""
        state = self.get(ticket.path)
        return state is not None and bool(state.tell_asked(ticket))

    def is_directory(self, path: str) -> bool:
        """Return whether a path lies above primitives only, so that other clients may make primitives below it."""
        return not any(each in self for each in (path, *ancestors(path)))


def _checked(state: Any, path: str, kind: str) -> Any:
    if state.kind != kind:
        raise ValueError(f"this client uses {path!r} for {state.kind} already; use another path for {kind}")
    return state
