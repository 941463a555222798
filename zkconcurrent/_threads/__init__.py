"""The primitives for threads, one module each, with the interfaces of `threading` and `queue`; and `namespace`."""
