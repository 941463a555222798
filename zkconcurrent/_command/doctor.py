"""`doctor`: asks a service, from where the programs run, what would make their locks fail or be slow.

Each check is a line: `ok`, `warn` (it works, or it can't be seen; but) or `fail` (a program would get an error, or its
lock would not be one), with what to do. Only what reads tell is asked, unless `--scratch` names a path below which it
may write: then also the requests by which locks are made, and the clock of the leader. What it makes there, it removes.
"""

from __future__ import annotations

import socket
import statistics
import time
import uuid
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from .._errors import ForeignNodeError, SequenceExhaustedError
from .._kazoo.addresses import shown
from .._kazoo.link import KazooClient, Link, Permissions, make_digest_acl_credential
from .._kazoo.replies import kazoo_errors
from .._kazoo.watches import AddWatch
from .._protocol.rules import check_queue, check_sequence, line_up, role_of
from .look import RULES, Scan
from .outcome import CommandError, Exit, document, escaped, write
from .server import ask_all, link_of

SICK = 1
OK, WARN, FAIL = "ok", "warn", "fail"
_READS, _WRITES = 21, 5
# In seconds: for a server's reply to a word.
_PATIENCE = 2.0
_LONGEST_REPLY = 1 << 20  # bytes
# Of the shared paths, how many have a line of their own.
_MOST = 20
# In seconds: what NTP keeps on any machine.
_MOST_AHEAD = 1.0
_REFUSED = "not in the whitelist"


class Finding(NamedTuple):
    """What one check has found.

    Attributes:
        name: what was looked at.
        level: `OK`, `WARN` or `FAIL`.
        text: what was found.
        remedy: what to do; empty if nothing.
        value: the same for programs, if it is a number, or a word.
    """

    name: str
    level: str
    text: str
    remedy: str = ""
    value: float | str | None = None

    def line(self) -> str:
        """Return what people read of it."""
        return escaped(f"{self.level:4}  {self.name}: {self.text}{self.remedy and f': {self.remedy}'}")


def doctor(found: Namespace) -> int:
    """Make all checks; return the exit code."""
    with link_of(found) as link:
        checks = [*_checks(link, found.scratch)]
        hosts = ",".join(shown(*address) for address in link.client.hosts)
    if found.json:
        write(f"{document('doctor', {'hosts': hosts}, checks=[check._asdict() for check in checks])}\n")
    else:
        write("".join(f"{check.line()}\n" for check in checks))
    return SICK if any(check.level == FAIL for check in checks) else 0


def _checks(link: Link, scratch: str | None) -> Iterator[Finding]:
    yield from _servers(link)
    yield _timeout(link)
    yield _latency("reads", _READS, lambda: link.client.exists("/"), link)
    yield from _root(link)
    yield from _paths(link)
    if scratch is None:
        yield Finding("writes, clock", WARN, "not looked at", "give --scratch PATH, below which this command may write")
    else:
        yield from _writes(link, scratch)
    # Last, as an old server may close the connection.
    yield _tree_watches(link)


# -- the servers -------------------------------------------------------------------------------------------------------


def _servers(link: Link) -> Iterator[Finding]:
    """Ask each server of the URL for what it is, by `srvr`, which no server has switched off."""
    client = link.client
    if client.use_ssl:
        yield Finding("servers", WARN, "over TLS they are not asked", "ask each by its AdminServer: /commands/srvr")
        return
    serving = 0
    hosts = list(dict.fromkeys(client.hosts))
    for host, port in hosts:
        name = f"server {shown(host, port)}"
        try:
            srvr = _word(host, port, "srvr")
        except (OSError, UnicodeError) as error:
            # A UnicodeError means that the text can be no name at all.
            yield Finding(name, WARN, f"does not answer ({error})", "start it, or take it out of the URL")
            continue
        said = dict(line.partition(": ")[::2] for line in srvr.splitlines())
        mode = said.get("Mode")
        if mode is None or mode == "read-only":
            text = "it does not serve" if mode is None else "it serves read-only clients alone"
            yield Finding(name, WARN, f"{text}: it has no quorum", "look at its log, and at the other servers")
        else:
            version = said.get("Zookeeper version", "?").partition(",")[0]
            serving += 1
            yield Finding(name, OK, f"ZooKeeper {version}, {mode}", value=version)
            yield from _figures(link, name, host, port)
    if serving < len(hosts):
        text = f"{serving} of {len(hosts)} servers of the URL serve"
        yield Finding("quorum", WARN, text, "mend the others, before one more ends the service", serving)
    elif len(hosts) > 1:
        yield Finding("quorum", OK, f"all {serving} servers of the URL serve", value=serving)
    else:
        yield Finding("quorum", WARN, "the URL names one server", "name all, so that clients find another one")
    if client.auth_data:
        yield Finding("credentials", WARN, "the password travels in plain text", "use zks://, and secureClientPort")


def _figures(link: Link, name: str, host: str, port: int) -> Iterator[Finding]:
    """Ask for what a server's administrator has set, and how it is, where it tells that."""
    try:
        told, figures = _word(host, port, "conf"), _word(host, port, "mntr")
    except OSError:
        return
    off = [word for word, reply in (("conf", told), ("mntr", figures)) if _REFUSED in reply]
    if off:
        remedy = "allow them there: 4lw.commands.whitelist=conf,mntr"
        text = f"{' and '.join(off)} are off, so its tick, or the state of its data, can't be seen"
        yield Finding(name, WARN, text, remedy)
    settings = dict(line.partition("=")[::2] for line in told.splitlines())
    with suppress(KeyError, ValueError):
        tick = float(settings["tickTime"]) / 1000
        asked = getattr(link.client, "tick", None)
        if asked is not None and asked < tick:
            yield Finding(
                name, FAIL, f"its tick is {tick:g} s, that of the URL {asked:g} s", "no lease is safe: mend it"
            )
        if 0 <= float(settings["minSessionTimeout"]) / 1000 < 2 * tick:
            yield Finding(name, FAIL, "minSessionTimeout is less than 2 ticks", "no lease is safe: raise it")
    said = dict(line.partition("\t")[::2] for line in figures.splitlines())
    if said.get("zk_digest_mismatches_count", "0") != "0":
        yield Finding(name, FAIL, "its copy of the data may have diverged (digest mismatches)", "rebuild the server")


def _word(host: str, port: int, word: str) -> str:
    """Return a server's reply to a word of four letters.

    Raises:
        OSError: there is none in time.
    """
    until, reply = time.monotonic() + _PATIENCE, b""
    with socket.create_connection((host, port), _PATIENCE) as connection:
        connection.sendall(word.encode())
        # The timeout of a socket begins anew with each byte, and something other than a ZooKeeper may send forever.
        while (left := until - time.monotonic()) > 0 and len(reply) < _LONGEST_REPLY:
            connection.settimeout(left)
            more = connection.recv(65536)
            if not more:
                return reply.decode(errors="replace")
            reply += more
    raise TimeoutError("timed out")


def _timeout(link: Link) -> Finding:
    asked, got = link.requested_timeout, link.leases.negotiated()
    if got is None:
        return Finding("session timeout", WARN, "unknown", "run this command again")
    if abs(got - asked) < 0.001:
        return Finding(
            "session timeout", OK, f"{got:g} s, as this command asked; each program asks for its own", value=got
        )
    limit = "maxSessionTimeout" if got < asked else "minSessionTimeout"
    remedy = f"ask for {got:g} (?timeout=), or change the servers' {limit}"
    return Finding("session timeout", WARN, f"{got:g} s, not the {asked:g} s that were asked", remedy, got)


def _latency(what: str, times: int, request: Callable[[], object], link: Link) -> Finding:
    """Measure how long a request takes; a lease needs writes that take less than a tenth of the session timeout."""
    taken = []
    for _ in range(times):
        began = time.monotonic()
        request()
        taken.append(time.monotonic() - began)
    median, most = statistics.median(taken), max(taken)
    slow = 10 * most > (link.leases.negotiated() or link.requested_timeout)
    text = f"{1000 * median:.1f} ms in the median, {1000 * most:.1f} ms at most, of {times}"
    remedy = "find out what is slow: network, disk; or raise the session timeout to ten times this"
    return Finding(what, WARN if slow else OK, text, remedy if slow else "", round(median, 6))


# -- what is there -----------------------------------------------------------------------------------------------------


def _root(link: Link) -> Iterator[Finding]:
    """Look at what the access rights of the URL's root let this client do."""
    client, name = link.client, f"access to {link.client.chroot or '/'}"
    try:
        acls, _ = client.get_acls("/")
    except kazoo_errors.NoNodeError:
        yield Finding(name, WARN, "there is no such node", "connect() makes it; for a plain KazooClient, create it")
        return
    except kazoo_errors.NoAuthError:
        yield Finding(name, FAIL, "this client may not even read the rights", "use the credentials of its creator")
        return
    mine = {("world", "anyone")}
    mine |= {(scheme, make_digest_acl_credential(*auth.split(":", 1))) for scheme, auth in client.auth_data}
    rights, unknown = 0, False
    for acl in acls:
        if (acl.id.scheme, acl.id.id) in mine:
            rights |= acl.perms
        else:
            unknown = unknown or acl.id.scheme != "digest"
    text = ", ".join(f"{acl.id.scheme}:{acl.id.id.partition(':')[0]} {_letters(acl.perms)}" for acl in acls)
    if not ~rights & (Permissions.READ | Permissions.CREATE):
        yield Finding(name, OK, text, value=_letters(rights))
    elif unknown:
        yield Finding(name, WARN, text, "whether this client is one of these can't be seen; --scratch tries it")
    else:
        yield Finding(name, FAIL, text, "a client needs the rights to read and to create (rc)", _letters(rights))


def _letters(rights: int) -> str:
    """Return rights as ZooKeeper's shell writes them."""
    letters = {"c": Permissions.CREATE, "d": Permissions.DELETE, "r": Permissions.READ, "w": Permissions.WRITE}
    return "".join(letter for letter, right in {**letters, "a": Permissions.ADMIN}.items() if rights & right)


def _paths(link: Link) -> Iterator[Finding]:
    """Look for paths on which an acquire would raise, or on which locks do not exclude each other."""
    scan = Scan(link)
    try:
        places = scan.places("/", None)
    except kazoo_errors.NoNodeError:
        return
    except kazoo_errors.NoAuthError:
        yield Finding("paths", FAIL, "this client may not list the root", "use the credentials of its creator")
        return
    bad = 0
    for path, names in sorted(scan.listings.items()):
        why = _why_refused(path, names)
        if why is not None:
            bad += 1
            if bad <= _MOST:
                yield Finding("paths", FAIL, why)
    if bad > _MOST:
        yield Finding("paths", FAIL, f"{bad - _MOST} more such paths", value=bad)
    if scan.unreadable:
        count = len(scan.unreadable)
        text = f"{count} may not be read, such as {scan.unreadable[0]}"
        yield Finding("paths", WARN, text, "a search for deadlocks ends there, and `ls` shows nothing", count)
    if not bad and not scan.unreadable:
        locks = len({place.path for place in places if place.kind != "Queue"})
        yield Finding(
            "paths", OK, f"nodes: {len(scan.listings)}, locks in use: {locks}; none has two kinds", value=locks
        )


def _why_refused(path: str, names: list[str]) -> str | None:
    """Return why a lock would refuse a queue, with what to do; None if it would not, or if it is not a queue."""
    ours = [name for name in names if name.startswith("_c_") and role_of(name) in RULES]
    if not ours:
        return None
    rule = RULES[role_of(ours[0]) or ""]
    try:
        check_queue(path, names, rule)
        late = check_sequence(path, line_up(ours, rule)[-1], rule)
    except (ForeignNodeError, SequenceExhaustedError) as error:
        return str(error)
    return f"{path}: its sequence numbers run out: leave it idle, or use another path" if late else None


def _tree_watches(link: Link) -> Finding:
    """Ask for a watch of a tree, which a `Dict` or `Set` needs."""
    try:
        (error,) = ask_all(lambda path, reply: link.transport.send(AddWatch(path), reply), ["/zookeeper"])
    except kazoo_errors.KazooException as failed:
        error = failed
    if error is None or isinstance(error, kazoo_errors.NoAuthError):
        return Finding("watches of trees", OK, "the server has them", value="yes")
    why, remedy = "it is older than 3.6", "upgrade"
    if isinstance(error, kazoo_errors.MarshallingError):
        why, remedy = "its watchManagerName is WatchManagerOptimized", "take that setting out"
    return Finding(
        "watches of trees", WARN, f"the server has none, as {why}", f"a Dict or Set needs them: {remedy}", "no"
    )


# -- what only a write shows -------------------------------------------------------------------------------------------


def _writes(link: Link, scratch: str) -> list[Finding]:
    """Do what an acquire and a release do, and read the leader's clock off a node; remove what was made."""
    checks: list[Finding] = []
    made: list[str] = []
    try:
        with suppress(kazoo_errors.NoNodeError):
            if any(role_of(name) for name in link.client.get_children(scratch)):
                raise CommandError(Exit.USAGE, f"--scratch {scratch}: a lock uses this path; name another one")
        _make(link, f"{scratch}/doctor-{uuid.uuid4().hex}", made)
        checks += _exercise(link, made[-1])
    except kazoo_errors.NoNodeError:
        checks.append(Finding("writes", WARN, "not tried, as the URL's root is missing", "create it"))
    except kazoo_errors.NoAuthError:
        remedy = "grant it the rights to create (c) and delete (d) where locks are"
        checks.append(Finding("writes", FAIL, f"this client may not write below {scratch}", remedy))
    except kazoo_errors.KazooException as error:
        remedy = "look at the servers' logs"
        checks.append(Finding("writes", FAIL, f"they fail below {scratch} ({type(error).__name__})", remedy))
    finally:
        left = [path for path in reversed(made) if not _is_removed(link.client, path)]
    if left:
        checks.append(Finding("scratch", WARN, f"not removed: {', '.join(left)}", "delete it"))
    return checks


def _make(link: Link, path: str, made: list[str]) -> None:
    """Make a container, and the nodes above it that are missing; note each."""
    client = link.client
    above = [path[:at] for at in range(1, len(path)) if path[at] == "/"]
    for each in above:
        if client.exists(each) is None:
            with suppress(kazoo_errors.NodeExistsError):
                client.create(each)
                made.append(each)
    made.append(path)
    (result,) = ask_all(link.make_container, [path])
    if isinstance(result, Exception):
        made.pop()
        raise result


def _is_removed(client: KazooClient, path: str) -> bool:
    try:
        client.delete(path)
    except kazoo_errors.KazooException as error:
        # The node may be gone already, or another client may use it.
        return isinstance(error, kazoo_errors.NoNodeError | kazoo_errors.NotEmptyError)
    return True


def _exercise(link: Link, folder: str) -> Iterator[Finding]:
    client = link.client
    ages: list[tuple[float, float]] = []

    def acquire_and_release() -> None:
        began = time.time()
        node, stat = client.create(f"{folder}/n-", ephemeral=True, sequence=True, include_data=True)
        took = time.time() - began
        ages.append((took, stat.ctime / 1000 - began - took / 2))
        transaction = client.transaction()
        transaction.check(node, -1)
        transaction.delete(node)
        for result in transaction.commit():
            if isinstance(result, Exception):
                raise result

    yield _latency("writes", _WRITES, acquire_and_release, link)
    took, ahead = min(ages)
    text = f"{abs(ahead):.3f} s {'ahead of' if ahead > 0 else 'behind'} this machine's, give or take {took / 2:.3f} s"
    wrong = abs(ahead) - took / 2 > _MOST_AHEAD
    remedy = "ages, and when an item of a DelayQueue is due, are wrong by that: set both by NTP" if wrong else ""
    yield Finding("leader's clock", WARN if wrong else OK, text, remedy, round(ahead, 3))
