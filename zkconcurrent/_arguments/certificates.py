"""TLS files: a wrong one is an error before a client starts, whereas kazoo would never stop trying to connect."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any


def check_files(settings: Mapping[str, Any]) -> None:
    """Refuse files that TLS can't use.

    kazoo reads them at each attempt to connect, and treats an error like a server that does not reply.

    Args:
        settings: `ca`, `certfile`, `keyfile` and `keyfile_password`, whichever are given.

    Raises:
        ValueError: a file can't be read, or is not what it must be; the error names the option.
    """
    ca, certfile = settings.get("ca"), settings.get("certfile")
    keyfile, password = settings.get("keyfile") or certfile, settings.get("keyfile_password") or ""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if keyfile and not certfile:
        raise ValueError("keyfile needs certfile: without that, no certificate would be sent")
    if ca:
        _check("ca", "it must be a PEM file of certificates", lambda: context.load_verify_locations(ca))
    if certfile:
        _check(
            "certfile or keyfile",
            "they must be PEM files of a certificate and its key, and an encrypted key needs keyfile_password",
            lambda: context.load_cert_chain(certfile, keyfile, password),
        )


def _check(option: str, rule: str, load: Callable[[], None]) -> None:
    try:
        load()
    except OSError as error:
        why = rule if isinstance(error, ssl.SSLError) else error.strerror
        raise ValueError(f"{option} can't be used: {why}") from None
