"""The primitives for threads, one module each: the interface of `threading` and `queue`, above the recipes."""
