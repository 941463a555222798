"""Calls and faults that Hypothesis draws."""
