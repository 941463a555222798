"""The invariants, the table of operations and faults, and the seeded bugs that they must find."""
