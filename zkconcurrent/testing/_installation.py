"""Find the installed ZooKeeper, and the class path that runs it.

There are four kinds of installations, searched for in this order: `home` (the folder in ZOOKEEPER_HOME), `debian` (the
package of Debian and Ubuntu), `path` (a zkServer.sh on the PATH) and `pyspark` (the jars in that PyPI package). The
environment variable ZKCONCURRENT_SERVER selects one kind, or `memory`, the library's own server, which needs no Java.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ._errors import HOW_TO_GET_ONE, NoServerError

_DEBIAN = Path("/usr/share/java")

# From hundreds of jars, these patterns pick a server's, with a logging library, and those that Curator adds.
# A ZooKeeper 3.9 needs netty's jars if `zookeeper.sessionRequireClientSASLAuth` is set.
_SERVER = re.compile(
    r"(zookeeper|zookeeper-jute|metrics-core|snappy-java"
    r"|slf4j-api|slf4j-simple|log4j-api|log4j-core|log4j-slf4j2-impl"
    r"|netty-(buffer|codec|codec-base|common|handler|resolver|transport))(-\d[^-]*)?\.jar"
)
_CURATOR = re.compile(r"(curator-client|curator-framework|curator-recipes|guava|failureaccess)(-\d[^-]*(-jre)?)?\.jar")
_VERSION = re.compile(r"zookeeper-(\d[\w.-]*)\.jar")


@dataclass(frozen=True)
class Installation:
    """One installed ZooKeeper.

    Attributes:
        kind: `home`, `debian`, `path`, `pyspark` or `memory`.
        version: the version of ZooKeeper, such as `"3.8.0"`; for the memory server, the version that it imitates.
        class_path: the jars that run a server; empty for the memory server.
        curator_class_path: the jars for a Java program that uses Curator's recipes; empty if they are not installed.
    """

    kind: str
    version: str
    class_path: tuple[Path, ...]
    curator_class_path: tuple[Path, ...] = ()


MEMORY = Installation("memory", "3.8.0", ())


def find_installation(kind: str | None = None) -> Installation:
    """Find a ZooKeeper.

    Args:
        kind: the only kind to look for. By default this is the kind in ZKCONCURRENT_SERVER or, without that variable,
            the first kind found.

    Raises:
        NoServerError: there is none, or none of that kind, or ZOOKEEPER_HOME names a folder without one.
    """
    wanted = kind or os.environ.get("ZKCONCURRENT_SERVER")
    if wanted and wanted not in _FINDERS:
        raise NoServerError(
            f"There is no kind of ZooKeeper {wanted!r}; ZKCONCURRENT_SERVER takes {', '.join(_FINDERS)}."
        )
    looked_for = []
    for name in [wanted] if wanted else _SEARCHED:
        try:
            return _FINDERS[name]()
        except LookupError as missing:
            looked_for.append(f"  {name}: {missing.args[0]}")
    raise NoServerError("\n".join(["No ZooKeeper was found. Looked for:", *looked_for, HOW_TO_GET_ONE]))


def _home() -> Installation:
    home = os.environ.get("ZOOKEEPER_HOME")
    if not home:
        raise LookupError("ZOOKEEPER_HOME is not set")
    jars = _unpacked(Path(home))
    if not jars:
        raise NoServerError(f"ZOOKEEPER_HOME is {home!r}, but there is no lib/zookeeper-*.jar in it.\n{HOW_TO_GET_ONE}")
    return Installation("home", _version(jars), jars)


def _debian() -> Installation:
    if not (_DEBIAN / "zookeeper.jar").exists():
        raise LookupError(f"no {_DEBIAN}/zookeeper.jar (the package zookeeper)")
    return _chosen("debian", _DEBIAN)


def _path() -> Installation:
    # Homebrew omits the .sh, and keeps the jars below a folder libexec, beside the script's folder.
    script = shutil.which("zkServer.sh") or shutil.which("zkServer")
    if not script:
        raise LookupError("no zkServer.sh on the PATH")
    home = Path(script).resolve().parent.parent
    jars = _unpacked(home) or _unpacked(home / "libexec")
    if not jars:
        raise LookupError(f"{script} is on the PATH, but there is no lib/zookeeper-*.jar in {home}")
    return Installation("path", _version(jars), jars)


def _pyspark() -> Installation:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise LookupError("not installed for this Python")
    folder = Path(spec.origin).parent / "jars"
    if not any(folder.glob("zookeeper-*.jar")):
        raise LookupError(f"no zookeeper-*.jar in {folder}")
    return _chosen("pyspark", folder)


_SEARCHED = ("home", "debian", "path", "pyspark")
_FINDERS: dict[str, Callable[[], Installation]] = {
    "home": _home,
    "debian": _debian,
    "path": _path,
    "pyspark": _pyspark,
    # The memory server is used only if the caller or the environment variable names it.
    "memory": lambda: MEMORY,
}


def _unpacked(home: Path) -> tuple[Path, ...]:
    """Return the jars of Apache's own tarball (before 3.5 the server's jar was beside lib, not in it)."""
    jars = (*sorted(home.glob("zookeeper-*.jar")), *sorted(home.glob("lib/*.jar")))
    return jars if any(_VERSION.fullmatch(jar.name) for jar in jars) else ()


def _chosen(kind: str, folder: Path) -> Installation:
    """Return the installation in a folder of jars that many programs share."""
    # Debian has each jar twice: with its version in the name and without.
    jars = {jar.resolve(): jar for jar in sorted(folder.glob("*.jar"), reverse=True)}.values()
    server = tuple(jar for jar in jars if _SERVER.fullmatch(jar.name))
    curator = tuple(jar for jar in jars if _CURATOR.fullmatch(jar.name))
    has_recipes = any(jar.name.startswith("curator-recipes") for jar in curator)
    return Installation(kind, _version(jars), server, server + curator if has_recipes else ())


def _version(jars: Iterable[Path]) -> str:
    versions = [found[1] for jar in jars if (found := _VERSION.fullmatch(jar.name))]
    return versions[0] if versions else "unknown"
