"""The only part that imports kazoo: its connection, spoken to directly."""
