"""The recipes of a Dict: it writes entries, and mirrors those of others."""
