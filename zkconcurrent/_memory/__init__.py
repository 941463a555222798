"""A ZooKeeper in memory, for tests, development and programs of one process: not replicated, not durable."""
