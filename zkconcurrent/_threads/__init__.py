"""For threads: the primitives, one module each, with the interface of `threading` and `queue`, and how to name them."""
