"""`doctor`: checks, on a machine where programs run, what in a service would make their locks fail or be slow.

Each check is a line with a level and what to do. The levels are `ok`, `warn` (it works but is not as it should be, or
it can't be checked) and `fail` (a program would get an error, or its lock would not exclude others). The checks only
read, unless `--scratch` names a path below which they may write. Then they also use a lock and a set there, as a
program would, read the leader's clock off the lock's node, and remove the nodes that they made.
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

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.security import Permissions, make_digest_acl_credential

from .. import Client, Lock, RefusedError, Set, ZkConcurrentError
from .._client.connect import TIMEOUT
from ..tree import inspect
from .outcome import CommandError, Exit, document, escaped, write
from .server import connected

SICK = 1
OK, WARN, FAIL = "ok", "warn", "fail"
_READS, _WRITES = 21, 5
# In seconds: how long to wait for a server's reply to a four-letter command.
_PATIENCE = 2.0
_PATIENCE_OF_LOCK = 30.0
_LONGEST_REPLY = 1 << 20  # bytes
# At most this many unusable paths get a line of their own.
_MOST = 20
# In seconds: with NTP, no machine's clock is wrong by more.
_MOST_AHEAD = 1.0
_REFUSED = "not in the whitelist"


class Finding(NamedTuple):
    """What one check has found.

    Attributes:
        name: what was checked.
        level: `OK`, `WARN` or `FAIL`.
        text: what was found.
        remedy: what to do; empty if nothing needs to be done.
        value: for programs, the finding, if it is a number or a word; otherwise None.
    """

    name: str
    level: str
    text: str
    remedy: str = ""
    value: float | str | None = None

    def line(self) -> str:
        """Return the line that people read."""
        return escaped(f"{self.level:4}  {self.name}: {self.text}{self.remedy and f': {self.remedy}'}")


def doctor(found: Namespace) -> int:
    """Make all checks; return the exit code."""
    with connected(found) as client:
        asked = found.settings.get("timeout", TIMEOUT)
        checks = [*_checks(client, asked, found.scratch)]
        hosts = ",".join(_shown(*address) for address in client.hosts)
    if found.json:
        write(f"{document('doctor', {'hosts': hosts}, checks=[check._asdict() for check in checks])}\n")
    else:
        write("".join(f"{check.line()}\n" for check in checks))
    return SICK if any(check.level == FAIL for check in checks) else 0


def _checks(client: Client, asked: float, scratch: str | None) -> Iterator[Finding]:
    yield from _servers(client)
    yield _timeout(client, asked)
    yield _latency("reads", _READS, lambda: client.exists("/"), client.session_timeout or asked)
    yield from _root(client)
    yield from _paths(client)
    if scratch is not None:
        yield from _writes(client, client.session_timeout or asked, scratch)
        return
    remedy = "give --scratch PATH, below which this command may write"
    yield Finding("writes, clock, watches of trees", WARN, "not looked at", remedy)


def _shown(host: str, port: int) -> str:
    """Return an address as it is written in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# -- the servers -------------------------------------------------------------------------------------------------------


def _servers(client: Client) -> Iterator[Finding]:
    """Ask each server of the URL for its version and mode, by `srvr`, which can't be switched off."""
    if client.use_ssl:
        yield Finding("servers", WARN, "over TLS they are not asked", "ask each by its AdminServer: /commands/srvr")
        return
    serving = 0
    hosts = list(dict.fromkeys(client.hosts))
    for host, port in hosts:
        name = f"server {_shown(host, port)}"
        try:
            srvr = _word(host, port, "srvr")
        except (OSError, UnicodeError) as error:
            # A UnicodeError means that the text is not a valid host name.
            yield Finding(name, WARN, f"does not answer ({error})", "start it, or take it out of the URL")
            continue
        fields = dict(line.partition(": ")[::2] for line in srvr.splitlines())
        mode = fields.get("Mode")
        if mode is None or mode == "read-only":
            text = "it does not serve" if mode is None else "it serves read-only clients alone"
            yield Finding(name, WARN, f"{text}: it has no quorum", "look at its log, and at the other servers")
        else:
            version = fields.get("Zookeeper version", "?").partition(",")[0]
            serving += 1
            yield Finding(name, OK, f"ZooKeeper {version}, {mode}", value=version)
            yield from _figures(client, name, host, port)
    if serving < len(hosts):
        text = f"{serving} of {len(hosts)} servers of the URL serve"
        yield Finding("quorum", WARN, text, "mend the others, before one more ends the service", serving)
    elif len(hosts) > 1:
        yield Finding("quorum", OK, f"all {serving} servers of the URL serve", value=serving)
    else:
        yield Finding("quorum", WARN, "the URL names one server", "name all, so that clients find another one")
    if client.auth_data:
        yield Finding("credentials", WARN, "the password travels in plain text", "use zks://, and secureClientPort")


def _figures(client: Client, name: str, host: str, port: int) -> Iterator[Finding]:
    """Ask a server for its configuration and its state, if its administrator lets it answer."""
    try:
        conf, mntr = _word(host, port, "conf"), _word(host, port, "mntr")
    except OSError:
        return
    off = [word for word, reply in (("conf", conf), ("mntr", mntr)) if _REFUSED in reply]
    if off:
        remedy = "allow them there: 4lw.commands.whitelist=conf,mntr"
        text = f"{' and '.join(off)} are off, so its tick, or the state of its data, can't be seen"
        yield Finding(name, WARN, text, remedy)
    settings = dict(line.partition("=")[::2] for line in conf.splitlines())
    with suppress(KeyError, ValueError):
        tick = float(settings["tickTime"]) / 1000
        if client.tick is not None and client.tick < tick:
            text = f"its tick is {tick:g} s, that of the URL {client.tick:g} s"
            yield Finding(name, FAIL, text, "no lease is safe: mend it")
        if 0 <= float(settings["minSessionTimeout"]) / 1000 < 2 * tick:
            yield Finding(name, FAIL, "minSessionTimeout is less than 2 ticks", "no lease is safe: raise it")
    figures = dict(line.partition("\t")[::2] for line in mntr.splitlines())
    if figures.get("zk_digest_mismatches_count", "0") != "0":
        yield Finding(name, FAIL, "its copy of the data may have diverged (digest mismatches)", "rebuild the server")


def _word(host: str, port: int, word: str) -> str:
    """Return a server's reply to a four-letter command.

    Raises:
        OSError: no reply came in time.
    """
    until, reply = time.monotonic() + _PATIENCE, b""
    with socket.create_connection((host, port), _PATIENCE) as connection:
        connection.sendall(word.encode())
        # A socket's timeout starts again with each byte, and something other than a ZooKeeper may send forever.
        while (left := until - time.monotonic()) > 0 and len(reply) < _LONGEST_REPLY:
            connection.settimeout(left)
            more = connection.recv(65536)
            if not more:
                return reply.decode(errors="replace")
            reply += more
    raise TimeoutError("timed out")


def _timeout(client: Client, asked: float) -> Finding:
    got = client.session_timeout
    if got is None:
        return Finding("session timeout", WARN, "unknown", "run this command again")
    if abs(got - asked) < 0.001:
        return Finding(
            "session timeout", OK, f"{got:g} s, as this command asked; each program asks for its own", value=got
        )
    limit = "maxSessionTimeout" if got < asked else "minSessionTimeout"
    remedy = f"ask for {got:g} (?timeout=), or change the servers' {limit}"
    return Finding("session timeout", WARN, f"{got:g} s, not the {asked:g} s that were asked", remedy, got)


def _latency(what: str, times: int, request: Callable[[], object], session_timeout: float) -> Finding:
    """Measure how long a request takes; a lease needs writes that take less than a tenth of the session timeout."""
    taken = []
    for _ in range(times):
        began = time.monotonic()
        request()
        taken.append(time.monotonic() - began)
    median, most = statistics.median(taken), max(taken)
    slow = 10 * most > session_timeout
    text = f"{1000 * median:.1f} ms in the median, {1000 * most:.1f} ms at most, of {times}"
    remedy = "find out what is slow: network, disk; or raise the session timeout to ten times this"
    return Finding(what, WARN if slow else OK, text, remedy if slow else "", round(median, 6))


# -- what is there -----------------------------------------------------------------------------------------------------


def _root(client: Client) -> Iterator[Finding]:
    """Check what the access rights of the URL's root allow this client to do."""
    name = f"access to {client.chroot or '/'}"
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


def _paths(client: Client) -> Iterator[Finding]:
    """Find the paths on which an acquire would raise, or on which locks do not exclude each other."""
    report = inspect(client)
    if not report.exists:
        return
    if report.path in report.unreadable:
        yield Finding("paths", FAIL, "this client may not list the root", "use the credentials of its creator")
        return
    whys = [*report.unusable.values()]
    for why in whys[:_MOST]:
        yield Finding("paths", FAIL, why)
    if len(whys) > _MOST:
        yield Finding("paths", FAIL, f"{len(whys) - _MOST} more such paths", value=len(whys))
    if report.unreadable:
        count = len(report.unreadable)
        text = f"{count} may not be read, such as {report.unreadable[0]}"
        yield Finding("paths", WARN, text, "a search for deadlocks ends there, and `ls` shows nothing", count)
    if not whys and not report.unreadable:
        locks = sum(each.kind != "Queue" for each in report.primitives)
        yield Finding("paths", OK, f"locks in use: {locks}; none has two kinds", value=locks)


# -- what only a write shows -------------------------------------------------------------------------------------------


def _writes(client: Client, session_timeout: float, scratch: str) -> list[Finding]:
    """Use a lock and a set as a program would; remove the nodes that they made."""
    if inspect(client, scratch, depth=0).primitives:
        raise CommandError(Exit.USAGE, f"--scratch {scratch}: a lock uses this path; name another one")
    if client.exists("/") is None:
        return [Finding("writes", WARN, "not tried, as the URL's root is missing", "create it")]
    folder = f"{scratch}/doctor-{uuid.uuid4().hex}"
    above = [folder[:at] for at in range(1, len(folder)) if folder[at] == "/"]
    made = [*(each for each in above if client.exists(each) is None), folder, f"{folder}/lock", f"{folder}/set"]
    checks: list[Finding] = []
    try:
        checks += _use_lock(client, session_timeout, f"{folder}/lock")
        checks.append(_use_set(client, f"{folder}/set"))
    except RefusedError as error:
        remedy = "grant it the rights to create (c) and delete (d) where locks are"
        checks.append(Finding("writes", FAIL, f"this client may not write below {scratch}: {error}", remedy))
    except (TimeoutError, ZkConcurrentError) as error:
        remedy = "look at the servers' logs"
        checks.append(Finding("writes", FAIL, f"they fail below {scratch} ({type(error).__name__})", remedy))
    left = [path for path in reversed(made) if not _is_removed(client, path)]
    if left:
        checks.append(Finding("scratch", WARN, f"not removed: {', '.join(left)}", "delete it"))
    return checks


def _use_lock(client: Client, session_timeout: float, path: str) -> Iterator[Finding]:
    lock = Lock(client, path)

    def acquire_and_release() -> None:
        with lock.hold(_PATIENCE_OF_LOCK):
            pass

    # The first acquire also makes the nodes above the lock, so it is not measured.
    acquire_and_release()
    yield _latency("writes", _WRITES, acquire_and_release, session_timeout)
    ages: list[tuple[float, float]] = []
    for _ in range(_WRITES):
        began = time.time()
        with lock.hold(_PATIENCE_OF_LOCK):
            took = time.time() - began
            owner = lock.owner()
        assert owner is not None
        ages.append((took, owner.queued.timestamp() - began - took / 2))
    took, ahead = min(ages)
    text = f"{abs(ahead):.3f} s {'ahead of' if ahead > 0 else 'behind'} this machine's, give or take {took / 2:.3f} s"
    wrong = abs(ahead) - took / 2 > _MOST_AHEAD
    remedy = "ages, and when an item of a DelayQueue is due, are wrong by that: set both by NTP" if wrong else ""
    yield Finding("leader's clock", WARN if wrong else OK, text, remedy, round(ahead, 3))


def _use_set(client: Client, path: str) -> Finding:
    """Read a set, which a watch of its tree keeps current."""
    members = Set(client, path)
    try:
        members.ready()
    except RefusedError as error:
        return Finding("watches of trees", WARN, "the servers have none", f"a Dict or Set needs them: {error}", "no")
    members.destroy()
    return Finding("watches of trees", OK, "the server has them", value="yes")


def _is_removed(client: KazooClient, path: str) -> bool:
    try:
        client.delete(path)
    except kazoo_errors.KazooException as error:
        # The node may be gone already, or another client may use it.
        return isinstance(error, kazoo_errors.NoNodeError | kazoo_errors.NotEmptyError)
    return True
