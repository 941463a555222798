"""The calls of one thread to one kind of primitive, each of them written down."""
