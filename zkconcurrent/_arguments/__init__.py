"""Checks of what callers pass: paths, numbers, codecs, locks. Each gives a clear error at once."""
