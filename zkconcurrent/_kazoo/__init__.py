"""The connection to ZooKeeper: the only package that imports kazoo, whose connection it uses directly."""
