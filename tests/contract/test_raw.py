"""The memory server and the real one, byte by byte: the same requests to both, the same replies and events from both.

A talk with one server is random (`History`), or a function below, whose docstring says what it asks, for what takes
time, comes in odd frames, or meets a server that is started again. The test holds it with both servers, and compares
what was said.
"""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from difflib import unified_diff
from typing import Any

import pytest

from tests.contract.raw import (
    ADD_WATCH,
    AUTH,
    CHECK,
    CHILDREN,
    CHILDREN2,
    CLOSE,
    CONTAINER,
    CREATE,
    CREATE2,
    DELETE,
    EXISTS,
    GET,
    GET_ACL,
    MULTI,
    OPEN,
    PING,
    REMOVE_WATCHES,
    SASL,
    SET,
    SET_ACL,
    SET_WATCHES,
    SET_WATCHES2,
    SYNC,
    TTL,
    Line,
    Literal,
    Long,
    Talk,
    create,
    multi,
    pack,
    talk_with,
)
from tests.helpers.eventually import eventually
from zkconcurrent.testing import MemoryServer, Server, find_installation

TALKS: dict[str, Callable[[Talk], None]] = {}
SCARCE = 0.5  # seconds between two looks for empty containers


@contextmanager
def both(container_check_interval: float) -> Iterator[tuple[Server, Server]]:
    """Start a real server and a memory server, with the same settings."""
    with (
        Server(container_check_interval=container_check_interval, installation=find_installation("debian")) as real,
        MemoryServer(container_check_interval=container_check_interval) as memory,
    ):
        yield real, memory


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    """Both servers; neither removes containers, which would take zxids at any time."""
    with both(3600) as servers:
        yield servers


def talk(function: Callable[[Talk], None]) -> Callable[[Talk], None]:
    """Have a function be a talk."""
    TALKS[function.__name__] = function
    return function


def compare(servers: tuple[Server, Server], root: str, hold: Callable[[Talk], None]) -> None:
    """Hold a talk with both servers at once, and compare."""

    def listen(server: Server) -> list[str]:
        with talk_with(server.hosts, root) as talk:
            hold(talk)
        return talk.lines

    with ThreadPoolExecutor() as pool:
        said = list(pool.map(listen, servers))
    assert said[0]
    # One difference leads to others.
    differences = list(unified_diff(*said, "the real server", "the memory server", lineterm="", n=4))[:40]
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("name", TALKS)
def test_talk(name: str, servers: tuple[Server, Server]) -> None:
    """Both servers say the same."""
    compare(servers, f"/{name}", TALKS[name])


# -- time, and odd frames ---------------------------------------------------------------------------------------------


@talk
def expired(talk: Talk) -> None:
    """A silent session ends in one change, and its connection is closed; a client that comes back learns of it."""
    a, b, other = talk.open("a", timeout=3000), talk.open("b"), talk.open("other")
    c = talk.open("c", timeout=600)
    c.close()
    b.ask(CREATE, *create(talk.root))
    for n in range(3):
        a.ask(CREATE, *create(f"{talk.root}/{n}", flags=1))
    b.ask(EXISTS, f"{talk.root}/0", True)
    b.ask(CHILDREN, talk.root, True)
    a.is_closed()
    eventually(lambda: not other.names(talk.root))
    talk.unordered = True
    b.events()
    b.ask(CHILDREN2, talk.root, False)
    talk.open("d", session=a.session, password=a.password).is_closed()
    b.ask(PING)


@talk
def malformed(talk: Talk) -> None:
    """Bytes that are no request end their connection and nothing else."""
    other = talk.open("other")
    for data in [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\0\x10\0\0",
        b"\0\0\0\0",
        b"\0\0\0\4\0\0\0\1",
        b"GET / HTTP/1.1\r\n\r\n",
        b"xxxx",
        struct.pack("!i", 44) + struct.pack("!iqiq", 0, 0, 1000, 0) + struct.pack("!i", -7) + bytes(16),
        struct.pack("!i", 44) + struct.pack("!iqiq", 0, 0, 1000, 0) + struct.pack("!i", 1000) + bytes(16),
    ]:
        line = talk.line("new")
        line.raw(data)
        line.say(data)
        line.is_closed()
        a = talk.open("a")
        a.raw(data)
        a.say(data)
        a.is_closed()
        other.ask(PING)


@talk
def large(talk: Talk) -> None:
    """Frames up to a mebibyte less one byte are read."""
    a = talk.open("a")
    r = talk.root
    fixed = 4 + 4 + 4 + len(r) + 4 + 4
    a.ask(CREATE, *create(r))
    for length in (0xFFFFF - fixed - 1, 0xFFFFF - fixed, 0xFFFFF - fixed + 1):
        body = (
            struct.pack("!i", len(r)) + r.encode() + struct.pack("!i", length) + bytes(length) + struct.pack("!i", -1)
        )
        line = talk.open("b")
        line.send(struct.pack("!ii", 1, SET) + body)
        frame = line.frame()
        line.say(len(body), frame is not None and frame[12:16].hex())
        a.ask(EXISTS, r, False)


# -- the server itself -------------------------------------------------------------------------------------------------


def containers(talk: Talk) -> None:
    """The opcode makes them, in a multi the flags; empty ones that had children go."""
    a, b = talk.open("a"), talk.open("b")
    r = talk.root
    a.ask(CREATE, *create(r))
    makers = {
        f"{r}/{name}{flags}": (opcode, flags)
        for name, opcode in (("create", CREATE), ("create2-", CREATE2), ("container", CONTAINER))
        for flags in (0, 1, 2, 3, 4)
    }
    made = []
    for path, (opcode, flags) in makers.items():
        a.ask(opcode, *create(path, flags=flags))
        a.ask(CHILDREN2, r, False)
    for name, opcode, flags in (("m", CREATE, 4), ("n", CONTAINER, 4), ("o", CONTAINER, 0), ("p", CREATE2, 4)):
        a.ask(MULTI, *multi((opcode, *create(f"{r}/{name}", flags=flags))))
    for name in a.names(r):
        made.append(f"{r}/{name}")
        a.ask(CREATE, *create(f"{made[-1]}/child"))
        a.ask(EXISTS, made[-1], False)
    a.ask(CONTAINER, *create(f"{r}/fresh"))
    a.ask(CONTAINER, *create(f"{r}/nested"))
    a.ask(CONTAINER, *create(f"{r}/nested/inner"))
    a.ask(CREATE, *create(f"{r}/nested/inner/leaf"))
    # All at once, lest the server looks for empty ones meanwhile.
    paths = [f"{r}/nested/inner/leaf", *(f"{path}/child" for path in made)]
    a.ask(MULTI, *multi(*((DELETE, path, -1) for path in paths)))
    left: list[str] = []
    while left != (left := b.names(r)):
        time.sleep(4 * SCARCE)
    b.ask(CHILDREN, r, False)


def test_containers() -> None:
    """Both servers remove the same nodes."""
    with both(SCARCE) as servers:
        compare(servers, "/containers", containers)


def test_restart() -> None:
    """What a server knows after it was killed: nodes, sessions and zxids, but no watches."""

    def restart(talk: Talk) -> None:
        a, c = talk.open("a"), talk.open("c")
        r = talk.root
        a.ask(CREATE2, *create(r, b"data"))
        a.ask(CREATE2, *create(f"{r}/e", flags=1))
        for n in range(3):
            a.ask(CREATE2, *create(f"{r}/n", flags=2))
            a.ask(SET, r, b"x" * n, -1)
        a.ask(SET_ACL, r, [(15, "world", "anyone")], -1)
        a.ask(DELETE, f"{r}/n0000000002", -1)
        a.ask(CONTAINER, *create(f"{r}/c"))
        a.ask(CREATE, *create(f"{r}/c", acl=[]))  # refused, with a zxid
        a.ask(CHILDREN2, r, True)
        c.ask(CLOSE)
        next(server for server in servers if server.port == talk.address[1]).restart()
        for line in (a, c):
            line.is_closed()
            line.closed = True
        b = talk.open("b", session=a.session, password=a.password)
        talk.open("d", session=c.session, password=c.password).is_closed()
        b.ask(PING)
        b.ask(CREATE2, *create(f"{r}/n", flags=2))
        b.ask(CHILDREN2, r, False)
        b.ask(GET_ACL, r)
        for name in ("e", "n0000000001", "c"):
            b.ask(GET, f"{r}/{name}", False)
        b.ask(DELETE, f"{r}/e", 0)

    with both(3600) as servers:
        compare(servers, "/restart", restart)


# -- random histories ------------------------------------------------------------------------------------------------

ODD_CHARACTERS = (
    "\0\1\x1f \x7f\x9f\xa0\xad\u200b\ud7ff\ue000\uf8ff\uf900\uffef\ufff0\ufffd\uffff\U00010000\U0001f512\U0010ffff"
)
ODD_ENDS = ["/", "//x", "/.", "/..", "/./x", "/../x", "/...", "/.x", "/x.", "/x/../y"]
ODD_ENDS += [f"/x{each}" for each in ODD_CHARACTERS]
ODD_PATHS = ["x", "//x", "bad", "/zookeeper", "/zookeeper/x", "/zookeeper/quota", "/zookeeper/config"]
NO_PATHS = [None, *map(Literal, (b"\0\0\0\2\xff/", b"\0\0\0\3/\xc0\x80", b"\0\0\0\4/\xed\xa0\x80"))]
ODD_ACLS: list[Any] = [
    *(None, [], [(0, "world", "anyone")], [(127, "world", "anyone")]),
    *([(31, scheme, "me")] for scheme in ("world", "kerberos", "sasl", "x509", "super")),
    *([(31, "auth", "")], [(31, "auth", ""), (1, "world", "anyone")], [(1, "world", "anyone"), (16, "auth", "x")]),
    *([(31, "digest", user)] for user in ("me:Jeu6fBKAyFlNC7JFTVSvsFLmoNU=", "me", "me:x:y", "me:", ":x", "me:x:")),
    *([(31, "ip", host)] for host in ("127.0.0.1", "127.0.0.0/8", "10.0.0.0/8", "here", "127.0.0.1/99")),
    [(1, "world", "anyone"), (1, "world", "anyone"), (2, "world", "anyone")],
]
CREDENTIALS = [
    *[("digest", b"me:secret")] * 5,
    ("digest", b"other"),
    ("ip", b"1.2.3.4"),
    ("digest", b""),
    ("digest", None),
]
CREDENTIALS += [("world", b"anyone"), ("kerberos", b"me"), (None, b"me")]
UNKNOWN = [0, 10, 52, 99, 108, 500, 2**31 - 1, -1, -2, -100]


class History:
    """A random history: three connections ask for anything, and each hears of what the others do.

    Args:
        talk: where it is held.
        seed: of the choices, which do not depend on the replies.
    """

    def __init__(self, talk: Talk, seed: int) -> None:
        self._talk = talk
        self._random = random.Random(seed)
        self._lines = [talk.open(name) for name in "abc"]
        self._names = 0
        # Whether the fields of the present request are such as no client of kazoo sends.
        self._odd = False

    def run(self, steps: int) -> None:
        """Let so many things happen."""
        self._lines[0].ask(CREATE, *create(self._talk.root))
        for _ in range(steps):
            n = self._random.randrange(len(self._lines))
            self._random.choices([self._ask, self._resume, self._refused, self._end], [60, 1, 0.5, 1])[0](n)
            self._talk.unordered = False
            for line in self._lines:
                line.events()

    def _ask(self, n: int) -> None:
        self._odd = self._random.random() < 0.25
        opcode, *fields = self._request()
        line = self._lines[n]
        line.ask(opcode, *fields)
        if opcode in UNKNOWN:
            # The server closes the connection a moment after its reply.
            line.is_closed()
        line.events()
        if line.closed:
            # The server has ended the connection, but not the session.
            line.close()
            self._lines[n] = self._open(session=line.session, password=line.password)

    def _resume(self, n: int) -> None:
        self._odd = False
        old = self._lines[n]
        if self._random.random() < 0.5:
            old.close()
        self._lines[n] = self._open(session=old.session, password=old.password, **self._greeting())
        if self._random.random() < 0.5:
            paths = [[self._path() for _ in range(2)] for _ in range(5)]
            seen = Long(self._talk.base + self._random.randrange(100))
            opcode, count = self._random.choice([(SET_WATCHES, 3), (SET_WATCHES2, 5)])
            self._lines[n].ask(opcode, seen, *paths[:count], xid=-8)

    def _refused(self, n: int) -> None:
        """Have somebody come with a wrong password, or with more than the server has seen; the session lives."""
        old = self._lines[n]
        passwords = [bytes(16), b"", None, b"x" * 16, old.password + b"x"]
        wrong = [
            *({"session": old.session, "password": each} for each in passwords),
            *(
                {"session": each, "password": old.password, "seen": self._talk.base + 2**20}
                for each in (old.session, 0)
            ),
            {"session": 12345, "password": old.password},
        ]
        self._open(**self._random.choice(wrong)).is_closed()
        old.close()
        self._lines[n] = self._open(session=old.session, password=old.password)

    def _end(self, n: int) -> None:
        self._talk.unordered = True  # the nodes of a session go in no order
        old = self._lines[n]
        old.ask(CLOSE)
        for line in self._lines[:n] + self._lines[n + 1 :]:
            line.events()
        if self._random.random() < 0.3:
            old.is_closed()
            self._open(session=old.session, password=old.password).is_closed()
        self._lines[n] = self._open(**self._greeting())

    def _open(self, **options: Any) -> Line:
        self._names += 1
        return self._talk.open(f"line{self._names}", **options)

    def _greeting(self) -> dict[str, Any]:
        """Return how a client greets the server that is old, or odd."""
        greetings = [{"tail": b""}, {"tail": b"\1"}, {"tail": b"\0more"}, {"protocol": 7}, {"seen": -1}]
        greetings += [{"timeout": 2**31 - 1}, {"timeout": 40_000}, {}, {}, {}]
        return self._random.choice(greetings)

    def _path(self, in_multi: bool = False) -> Any:
        if self._odd and self._random.random() < 0.3:
            ends = [self._talk.root + self._random.choice(ODD_ENDS) for _ in range(4)]
            odd = [*ends, self._random.choice(ODD_PATHS), *([] if in_multi else [self._random.choice(NO_PATHS)])]
            return self._random.choice(odd)
        names = self._random.choices(
            ["a", "b", "c0000000001", "", "."], [8, 8, 4, 1, 0.2], k=self._random.choice([0, 1, 1, 1, 2, 2, 3])
        )
        return "/".join([self._talk.root, *names])

    def _acl(self) -> Any:
        if self._odd and self._random.random() < 0.5:
            return self._random.choice(ODD_ACLS)
        return self._random.choices([OPEN, [(1, "world", "anyone")], [(13, "world", "anyone")], []], [30, 1, 2, 0.5])[0]

    def _create(self, in_multi: bool = False) -> tuple[Any, ...]:
        ttl = 0 if in_multi else 0.2  # with a time to live, the real server stumbles in a multi
        flags = self._random.choices([0, 1, 2, 3, 4, 9, 5, 6], [10, 6, 3, 3, 3, 0.2 + self._odd, ttl, ttl])[0]
        data, path = self._random.choice([b"", b"data", None]), self._path(in_multi)
        if not isinstance(path, str):
            flags = 0
        elif flags in (2, 3) and len(path) > len(self._talk.root):
            path = path[:-1] + self._random.choice(["c", "c", ""])
        return create(path, data, flags, self._acl())

    def _version(self) -> int:
        return self._random.choices([-1, 0, 1, 2, 7, -2], [6, 4, 2, 1, self._odd, self._odd])[0]

    def _request(self) -> tuple[Any, ...]:
        path, flag = self._path(), self._random.random() < 0.4
        parts = [self._part() for _ in range(self._random.randrange(5))]
        of_below = (
            self._acl() if path != self._talk.root else self._random.choice([OPEN, OPEN, [(16, "world", "anyone")]])
        )
        # What Java can't keep in one char, or is no text, it sends back in a way of its own.
        kept = path is None or (isinstance(path, str) and path[-1:] <= "\uffff")
        # What the real server says of watches at what is no path depends on its other watches.
        watched = path if isinstance(path, str) and path.startswith("/") else self._talk.root
        requests: list[tuple[float, tuple[Any, ...]]] = [
            (12, (CREATE, *self._create())),
            (6, (CREATE2, *self._create())),
            (2, (CONTAINER, *self._create())),
            (10, (DELETE, path, self._version())),
            (8, (SET, path, self._random.choice([b"", b"12", None]), self._version())),
            (7, (EXISTS, path, flag)),
            (7, (GET, path, flag)),
            (5, (CHILDREN, path, flag)),
            (5, (CHILDREN2, path, flag)),
            (2, (GET_ACL, path)),
            (2, (SET_ACL, path, of_below, self._version())),
            (kept, (SYNC, path)),
            (12, (MULTI, *multi(*parts))),
            (5, (ADD_WATCH, path, self._random.choice([0, 0, 1, 1, 2, -1]))),
            (4, (REMOVE_WATCHES, watched, self._random.choice([1, 1, 2, 2, 3, 3, 4, 5, 0, -1]))),
            (1, (AUTH, 0, *self._random.choice(CREDENTIALS))),
            (0.1, (SASL, self._random.choice([b"token", b"", None, Literal(b"\0")]))),
            (0.2, (self._random.choice(UNKNOWN), "/", False)),
            (0.2, (TTL, *create(path, flags=5), Long(1000))),
        ]
        weights, choices = zip(*requests, strict=True)
        request: tuple[Any, ...] = self._random.choices(choices, weights)[0]
        if self._odd and self._random.random() < 0.2 and request[0] not in (AUTH, SASL, *UNKNOWN):
            return request[0], Literal(self._broken(pack(*request[1:])))
        return request

    def _broken(self, body: bytes) -> bytes:
        """Return a body that is cut, has more, or is none."""
        cut = body[: self._random.randrange(len(body) + 1)]
        lengths = [b"\xff\xff\xff\xfe", b"\x7f\xff\xff\xff", b"\0\0\0\5/"]
        return self._random.choice([cut, cut, body + b"more", self._random.randbytes(9), *lengths])

    def _part(self) -> tuple[Any, ...]:
        path = self._path(in_multi=True)
        parts = [
            (CREATE, *self._create(in_multi=True)),
            (self._random.choice([CREATE2, CONTAINER]), *self._create(in_multi=True)),
            (DELETE, path, self._version()),
            (SET, path, self._random.choice([b"3", b"3", None]), self._version()),
            (CHECK, path, self._version()),
        ]
        if self._odd and self._random.random() < 0.2:
            parts = [(GET, path, False), (CHILDREN, path, False), (SYNC, path), (99, path), (SET_ACL, path, OPEN, -1)]
            parts += [(TTL, *create(path, flags=self._random.choice([0, 5])), Long(self._random.choice([100, -1])))]
        return self._random.choice(parts)


@pytest.mark.parametrize("seed", range(int(os.environ.get("RAW_HISTORIES", "12"))))
def test_history(seed: int, servers: tuple[Server, Server]) -> None:
    """Whatever clients ask, both servers say the same."""
    compare(servers, f"/history{seed}", lambda talk: History(talk, seed).run(250))
