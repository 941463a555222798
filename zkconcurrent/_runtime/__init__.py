"""Python's own: threads, tasks, greenlets, signals, forks and exit. Knows nothing of ZooKeeper."""
