"""The invariants, and the table of operations and faults."""
