"""Credentials, and a client's log, which shows none."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from .._runtime.clock import monotonic

_SAME = 60.0  # seconds


class Secret(str):
    """A credential; its repr, which kazoo logs, does not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def secret(option: str, credential: object) -> Secret:
    """Return the credential of an option as a `Secret`.

    Raises:
        TypeError: it is not a str. The text of any other object, such as "b'...'", would be a wrong password.
    """
    if not isinstance(credential, str):
        raise TypeError(f"the credentials in {option} must be a str, not {type(credential).__name__}")
    return Secret(credential)


def credentials(auth_data: Iterable[tuple[str, str]]) -> list[tuple[str, Secret]]:
    """Return the credentials of the option `auth_data`.

    Raises:
        TypeError: they are not pairs of strings.
    """
    try:
        pairs = [(scheme, auth) for scheme, auth in auth_data]
    except (TypeError, ValueError):
        raise TypeError("auth_data must be a list of pairs, such as ('digest', 'user:password')") from None
    return [(scheme, secret("auth_data", auth)) for scheme, auth in pairs]


class RedactedLog(logging.LoggerAdapter):  # type: ignore[type-arg]
    """A client's log without the user's password, or the session's, with which others could take over the session.

    While no server replies, kazoo logs the same warning for each attempt, some ten in 5 s. Each of these warnings, and
    each address to which kazoo connects, is logged once in `_SAME` seconds; the others are logged at DEBUG.

    Attributes:
        muted: whether to log nothing, as the interpreter is exiting and closes the client.
    """

    def __init__(self, logger: logging.Logger) -> None:
        if not callable(getattr(logger, "isEnabledFor", None)):
            raise TypeError(f"logger must be a logging.Logger, not {type(logger).__name__}")
        super().__init__(logger, {})
        # When each message was last logged at its own level.
        self._told: dict[str, float] = {}
        self.muted = False

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message with its secrets hidden."""
        # The adapter's own `isEnabledFor` would cost one more call, twice for each reply.
        if self.muted or not self.logger.isEnabledFor(level):
            return
        hides = "passwd" in str(msg)
        shown = [Secret() if hides and isinstance(arg, bytes) else _without_secrets(arg) for arg in args]
        if level == logging.WARNING or "Connecting to" in str(msg):
            text, now = f"{msg} {shown}", monotonic()
            if now - self._told.get(text, -_SAME) < _SAME:
                level = logging.DEBUG
            else:
                self._told[text] = now
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        self.logger.log(level, msg, *shown, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.logger, name)


def _without_secrets(request: Any) -> Any:
    """Return a request of kazoo's, a named tuple, without its secrets."""
    hidden = {"auth", "passwd", "challenge"}.intersection(getattr(request, "_fields", ()))
    return request._replace(**dict.fromkeys(hidden, Secret())) if hidden else request
