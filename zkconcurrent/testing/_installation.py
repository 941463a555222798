"""Where a ZooKeeper is installed, and the class path that runs it.

Four kinds are known, and looked for in this order: ``home`` (the folder named by ZOOKEEPER_HOME), ``debian`` (the
package of Debian and Ubuntu), ``path`` (a zkServer.sh on the PATH) and ``pyspark`` (the jars inside that PyPI package).
The environment variable ZKCONCURRENT_SERVER asks for one kind alone.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from zkconcurrent.testing._errors import HOW_TO_GET_ONE, NoServerError

_DEBIAN = Path("/usr/share/java")

# Among hundreds of other jars: those a server needs, with something that writes its log, and those Curator adds.
_SERVER = re.compile(
    r"(zookeeper|zookeeper-jute|metrics-core|snappy-java"
    r"|slf4j-api|slf4j-simple|log4j-api|log4j-core|log4j-slf4j2-impl)(-\d[^-]*)?\.jar"
)
_CURATOR = re.compile(
    r"(curator-client|curator-framework|curator-recipes|guava|failureaccess|netty-handler)(-\d[^-]*(-jre)?)?\.jar"
)
_VERSION = re.compile(r"zookeeper-(\d[\w.-]*)\.jar")


@dataclass(frozen=True)
class Installation:
    """One ZooKeeper that was found.

    Attributes:
        kind: ``home``, ``debian``, ``path`` or ``pyspark``.
        version: Of ZooKeeper, such as ``"3.8.0"``.
        class_path: The jars that run a server.
        curator_class_path: The jars for a Java program that uses Curator's recipes; empty where they are not installed.
    """

    kind: str
    version: str
    class_path: tuple[Path, ...]
    curator_class_path: tuple[Path, ...] = ()


def find_installation(kind: str | None = None) -> Installation:
    """Find a ZooKeeper.

    Args:
        kind: The only kind to look for; by default what ZKCONCURRENT_SERVER says, or else the first there is.

    Raises:
        NoServerError: There is none, or not of the kind asked for, or ZOOKEEPER_HOME names a folder without one.
    """
    wanted = kind or os.environ.get("ZKCONCURRENT_SERVER")
    if wanted and wanted not in _FINDERS:
        raise NoServerError(
            f"No kind of ZooKeeper is called {wanted!r}; ZKCONCURRENT_SERVER takes {', '.join(_FINDERS)}."
        )
    looked_for = []
    for name in [wanted] if wanted else _FINDERS:
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
    # Homebrew names it without .sh, and keeps the jars in a folder libexec beside it.
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


_FINDERS: dict[str, Callable[[], Installation]] = {
    "home": _home,
    "debian": _debian,
    "path": _path,
    "pyspark": _pyspark,
}


def _unpacked(home: Path) -> tuple[Path, ...]:
    """The jars of Apache's own tarball (before 3.5 the server's jar was not in lib, but beside it)."""
    jars = (*sorted(home.glob("zookeeper-*.jar")), *sorted(home.glob("lib/*.jar")))
    return jars if any(_VERSION.fullmatch(jar.name) for jar in jars) else ()


def _chosen(kind: str, folder: Path) -> Installation:
    """The few jars that count, of a folder which many programs share."""
    # Debian has each jar twice, with its version in its name and without.
    jars = {jar.resolve(): jar for jar in sorted(folder.glob("*.jar"), reverse=True)}.values()
    server = tuple(jar for jar in jars if _SERVER.fullmatch(jar.name))
    curator = tuple(jar for jar in jars if _CURATOR.fullmatch(jar.name))
    has_recipes = any(jar.name.startswith("curator-recipes") for jar in curator)
    return Installation(kind, _version(jars), server, server + curator if has_recipes else ())


def _version(jars: Iterable[Path]) -> str:
    versions = [found[1] for jar in jars if (found := _VERSION.fullmatch(jar.name))]
    return versions[0] if versions else "unknown"
