"""The access control lists of the nodes that a client makes: given by a word, or as kazoo's ACLs."""

from __future__ import annotations

from collections.abc import Sequence

from .._kazoo.link import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_acl
from .url import ACLS, Settings

# For a directory: any client may add nodes, and only a node's creator may delete it.
_DIRECTORY_ACL = [*CREATOR_ALL_ACL, make_acl("world", "anyone", read=True, create=True)]


def take_acl(settings: Settings) -> None:
    """Set the ACLs of the nodes that the client makes.

    Raises:
        TypeError: `acl` is neither a word nor a list, or `default_acl` is not a list.
        ValueError: `acl` is an unknown word, or "creator" without credentials; or `default_acl` is given too.
    """
    proven = bool(settings.get("auth_data") or settings.get("sasl_options"))
    acl = settings.pop("acl", None)
    if acl is not None and settings.get("default_acl") is not None:
        raise ValueError("acl and default_acl set the same thing: give only one of them")
    if settings.get("default_acl") is not None:
        settings["default_acl"] = _acl_list("default_acl must be", settings["default_acl"])
        return
    if acl is None:
        acl = "creator" if proven else "open"
    if isinstance(acl, str):
        if acl not in ACLS:
            raise ValueError(f"acl must be one of {', '.join(ACLS)}, or a list of kazoo.security.ACL")
        if acl == "creator" and not (proven or settings.get("certfile")):
            raise ValueError("acl=creator needs credentials: a user and a password, sasl, or a certfile")
        settings["default_acl"] = CREATOR_ALL_ACL if acl == "creator" else OPEN_ACL_UNSAFE
        settings["directory_acl"] = _DIRECTORY_ACL if acl == "creator" else None
    else:
        settings["default_acl"] = _acl_list(f"acl must be one of {', '.join(ACLS)}, or", acl)


def _acl_list(must_be: str, given: object) -> list[ACL]:
    if not isinstance(given, Sequence) or not given or not all(isinstance(each, ACL) for each in given):
        raise TypeError(f"{must_be} a list of kazoo.security.ACL that is not empty")
    return list(given)
