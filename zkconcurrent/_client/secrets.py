"""Credentials, and a client's log, which shows none."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from .._runtime.clock import monotonic

_SAME = 60.0  # seconds
# So often is one kind of warning shown in that time.
_OFTEN = 3


class Secret(str):
    """A credential; its repr, which kazoo logs, does not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def secret(option: str, credential: object) -> Secret:
    """Return a credential that an option gives.

    Raises:
        TypeError: it is not a str. The text of any other object, such as "b'...'", would be a wrong password.
    """
    if not isinstance(credential, str):
        raise TypeError(f"the credentials in {option} must be a str, not {type(credential).__name__}")
    return Secret(credential)


def credentials(auth_data: Iterable[tuple[str, str]]) -> list[tuple[str, Secret]]:
    """Return the credentials of the option `auth_data`.

    Raises:
        TypeError: they are no pairs of strings.
    """
    try:
        pairs = [(scheme, auth) for scheme, auth in auth_data]
    except (TypeError, ValueError):
        raise TypeError("auth_data must be a list of pairs, such as ('digest', 'user:password')") from None
    return [(scheme, secret("auth_data", auth)) for scheme, auth in pairs]


class RedactedLog(logging.LoggerAdapter):  # type: ignore[type-arg]
    """A client's log without the user's password, and without the session's, which would let others take it over.

    While no server replies, kazoo tells of each attempt, some ten times in 5 s, in the same words. The first of these
    warnings stays one, and so does one each `_SAME`; that it connects to an address is told once, until it has
    connected. The others are logged at DEBUG. So is what it tells of connections once one was lost more than `_OFTEN`
    times in `_SAME`, for the rest of this time.

    Attributes:
        muted: nothing is logged any more, as the exit of the interpreter closes the client.
    """

    def __init__(self, logger: logging.Logger) -> None:
        if not callable(getattr(logger, "isEnabledFor", None)):
            raise TypeError(f"logger must be a logging.Logger, not {type(logger).__name__}")
        super().__init__(logger, {})
        self._last: tuple[str, float] = ("", 0.0)
        self._tried: set[str] = set()
        # When each kind of warning came first in this minute, and how often since.
        self._shown: dict[str, tuple[float, int]] = {}
        self._flaps = self.muted = False

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message with its secrets hidden."""
        # Its own `isEnabledFor` would be one call more, twice for each reply.
        if self.muted or not self.logger.isEnabledFor(level):
            return
        hides = "passwd" in str(msg)
        shown = [Secret() if hides and isinstance(arg, bytes) else _without_secrets(arg) for arg in args]
        text, now = f"{msg} {shown}", monotonic()
        if "Connecting to" in text:
            level = logging.DEBUG if text in self._tried else level
            self._tried.add(text)
        elif level == logging.INFO:
            self._tried.clear()
        elif level == logging.WARNING:
            if text == self._last[0] and now - self._last[1] < _SAME:
                level = logging.DEBUG
            elif self._is_often(str(msg), now):
                if self._flaps:
                    level = logging.DEBUG
                else:
                    msg = f"{msg}; this goes on, and what more comes of it in this minute is logged at DEBUG"
                self._flaps = True
            else:
                self._last, self._flaps = (text, now), False
        if self._flaps and level == logging.INFO and "onnecti" in text and "Closing" not in text:
            level = logging.DEBUG
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        self.logger.log(level, msg, *shown, **kwargs)

    def _is_often(self, kind: str, now: float) -> bool:
        since, times = self._shown.get(kind, (now, 0))
        if now - since >= _SAME:
            since, times = now, 0
        self._shown[kind] = since, times + 1
        return times >= _OFTEN

    def __getattr__(self, name: str) -> Any:
        return getattr(self.logger, name)


def _without_secrets(request: Any) -> Any:
    """Return a request of kazoo's, a named tuple, as it is logged."""
    hidden = {"auth", "passwd", "challenge"}.intersection(getattr(request, "_fields", ()))
    return request._replace(**dict.fromkeys(hidden, Secret())) if hidden else request
