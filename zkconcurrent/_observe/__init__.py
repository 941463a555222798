"""The observers of locks: events, long waits, deadlocks, hold limits, and `inspect()`. No lock relies on them."""
