"""The connection to ZooKeeper. Only this package imports kazoo; it uses kazoo's connection directly."""
