"""The same names without a server, for programs of one process."""
