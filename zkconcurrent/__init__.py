"""The locks of `threading`, shared by every process that opens the same path in the same ZooKeeper."""
