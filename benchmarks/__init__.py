"""Ours, kazoo's recipes and Java Curator side by side: one server, one run, in turns. Run as `python -m benchmarks`.

Nothing here is a test, and no figure fails a run: the request counts that must hold are in `tests/costs`.
"""
