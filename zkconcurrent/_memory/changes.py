"""The types of the service: what clients ask for, the steps of a change, and its events."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

# For each entry, the permissions, the scheme and the id.
Acl: TypeAlias = tuple[tuple[int, str, str], ...]
# The numbers of a node, in the order of the protocol.
Stat: TypeAlias = tuple[int, ...]
# The schemes and ids that a connection has authenticated as.
Ids: TypeAlias = Sequence[tuple[str, str]]

EPHEMERAL, SEQUENTIAL, CONTAINER_FLAG = 1, 2, 4
READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
OPEN: Acl = ((31, "world", "anyone"),)
CREATED, DELETED, CHANGED, CHILD = 1, 2, 3, 4  # the types of events
ANY_VERSION = -1
CONTAINER = -(1 << 63)  # the owner of a container


class Code(IntEnum):
    """ZooKeeper's error codes, as far as they are used here."""

    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NO_WATCHER = -121


class Refused(Exception):
    """The service refuses a request.

    Attributes:
        code: the reason.
        index: which of the operations was refused, counted from 0.
    """

    index = 0

    def __init__(self, code: Code) -> None:
        super().__init__(code)
        self.code = code


# -- what clients ask for --------------------------------------------------------------------------------------------


class Create(NamedTuple):
    """Make a node, with the flags `EPHEMERAL` and `SEQUENTIAL` if given; or make a container."""

    path: str
    data: bytes | None = b""
    acl: Acl = OPEN
    flags: int = 0
    container: bool = False


class Delete(NamedTuple):
    """Delete a node, if it has that version."""

    path: str
    version: int = ANY_VERSION


class SetData(NamedTuple):
    """Write a node's data, if it has that version."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


class SetAcl(NamedTuple):
    """Write a node's access rights, if they have that version."""

    path: str
    acl: Acl
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Refuse the whole request unless a node exists and has that version."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | Delete | SetData | SetAcl | Check

# -- what is done ----------------------------------------------------------------------------------------------------


class Made(NamedTuple):
    """A node is made; `creates` counts all children that its parent has ever had, this one included."""

    path: str
    data: bytes | None
    acl: Acl
    owner: int
    creates: int
    time: int


class Removed(NamedTuple):
    """A node is deleted."""

    path: str


class Written(NamedTuple):
    """A node's data is written, which gives it that version."""

    path: str
    data: bytes | None
    version: int
    time: int


class Guarded(NamedTuple):
    """A node's access rights are written, which gives them that version."""

    path: str
    acl: Acl
    version: int


class Checked(NamedTuple):
    """A node was checked."""

    path: str


class Opened(NamedTuple):
    """A session begins, with that timeout in milliseconds."""

    session: int
    timeout: int


class Closed(NamedTuple):
    """A session ends, and its nodes are deleted."""

    session: int
    paths: tuple[str, ...]


Step: TypeAlias = Made | Removed | Written | Guarded | Checked | Opened | Closed
Change: TypeAlias = tuple[Step, ...]  # empty for a refused request


class Event(NamedTuple):
    """What happened to a node.

    Attributes:
        kind: `CREATED`, `DELETED`, `CHANGED` or, for the watchers of its children, `CHILD`.
        path: the node's path.
        acl: the node's access rights; a client without the right to read the node gets no event.
        acl_above: the access rights of the node's parent.
    """

    kind: int
    path: str
    acl: Acl
    acl_above: Acl = OPEN


def split(path: str) -> tuple[str, str]:
    """Return the path of a node's parent ("" if that is the root), and the node's name."""
    above, _, name = path.rpartition("/")
    return above, name
