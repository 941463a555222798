"""Randomised runs on a real ensemble under faults, whose histories are checked: `python -m tests.soak`."""
