"""Access rights: which ones are valid, and what they allow."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network

from .changes import OPEN, Acl, Code, Ids, Refused


def resolve(acl: Acl, ids: Ids | None) -> Acl:
    """Return access rights, with "auth" replaced by the ids that it stands for."""
    if acl == OPEN:
        return OPEN
    resolved: list[tuple[int, str, str]] = []
    for permissions, scheme, name in dict.fromkeys(acl):
        meant = [(permissions, scheme, name)]
        # "auth" does not stand for the address: a connection does not prove its address.
        if scheme == "auth":
            meant = [(permissions, *each) for each in ids or () if each[0] == "digest"]
        elif not _is_valid(scheme, name):
            meant = []
        if not meant:
            raise Refused(Code.INVALID_ACL)
        resolved += meant
    if not resolved:
        raise Refused(Code.INVALID_ACL)
    return tuple(resolved)


def allows(acl: Acl, ids: Ids | None, permission: int) -> bool:
    """Return whether connections with these ids have the permission."""
    if acl is OPEN or ids is None or not acl:
        return True
    return any(
        permissions & permission
        and (
            (scheme, name) == ("world", "anyone")
            or any(each == scheme and _matches(scheme, known, name) for each, known in ids)
        )
        for permissions, scheme, name in acl
    )


def demand(acl: Acl, ids: Ids | None, permission: int) -> None:
    if not allows(acl, ids, permission):
        raise Refused(Code.NO_AUTH)


def _is_valid(scheme: str, name: str) -> bool:
    if scheme == "digest":
        return name.rstrip(":").count(":") == 1
    if scheme == "ip":
        return _network(name) is not None
    return (scheme, name) == ("world", "anyone")


def _matches(scheme: str, known: str, name: str) -> bool:
    if scheme != "ip":
        return known == name
    network, address = _network(name), _network(known)
    return network is not None and address is not None and bool(address.network_address in network)


def _network(name: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(name, strict=False)
    except ValueError:
        return None
