"""What looks on at locks: events, long waits, deadlocks, limits of holds, and `inspect()`. No lock depends on it."""
