"""Help with Python itself: threads, tasks, greenlets, signals, forks and exit. Nothing here knows of ZooKeeper."""
