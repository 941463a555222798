"""A ZooKeeper in memory, for tests, development and programs of one process: not replicated, not durable."""

VERSION = "3.8.0"  # the ZooKeeper that it behaves like
