"""The error for a machine without ZooKeeper or Java, and how to get them."""

from __future__ import annotations

HOW_TO_GET_ONE = """\
Any of these gives you one:
  pip:     pip install 'zkconcurrent[server]'             (a ZooKeeper and a Java, no root needed)
  Debian:  apt-get install zookeeper default-jre-headless
  macOS:   brew install zookeeper                         (and set JAVA_HOME to "$(brew --prefix openjdk)")
  else:    unpack an Apache ZooKeeper anywhere, set ZOOKEEPER_HOME to it and JAVA_HOME to a Java
or run a ZooKeeper in a container and give your clients its address instead of starting one here.
Tests and development can do without: ZKCONCURRENT_SERVER=memory has the library's own server started instead."""


class NoServerError(RuntimeError):
    """This machine has no ZooKeeper, or no Java to run it.

    The message lists the places that were searched, and says how to get a server.
    """
