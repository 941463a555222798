"""The checkers of a history, and the broken primitives that they must find."""
