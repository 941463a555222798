"""The recipes of a Dict: they write entries, and mirror the entries of other clients."""
