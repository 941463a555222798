"""The benchmark works, and its arithmetic is right; no test asserts a time."""
