"""The one error that users of the package must be able to act on: there is no server to start."""

from __future__ import annotations

HOW_TO_GET_ONE = """\
Any of these gives you one:
  pip:     pip install 'zkconcurrent[server]'             (a ZooKeeper and a Java, no root needed)
  Debian:  apt-get install zookeeper default-jre-headless
  macOS:   brew install zookeeper                         (and set JAVA_HOME to "$(brew --prefix openjdk)")
  else:    unpack an Apache ZooKeeper anywhere, set ZOOKEEPER_HOME to it and JAVA_HOME to a Java
or run a ZooKeeper in a container and give your clients its address instead of starting one here."""


class NoServerError(RuntimeError):
    """No ZooKeeper, or no Java to run it, was found on this machine.

    The message lists each place that was looked at, and how to get a server.
    """
