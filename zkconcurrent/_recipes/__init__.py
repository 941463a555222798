"""Recipes: each algorithm once, as a generator that yields operations and receives their results.

A recipe knows nothing of threads, clocks or interrupts. The driver raises deadlines and interrupts at the yield, and
discards the recipe's tickets if it ends with an exception. Each file has one algorithm, or a part that several share,
and each recipe reads top to bottom.
"""
